"""Names of other packages that `skyward_nb/compat` uses are there, with the parameters they are given.

A case fails when a package has changed: its sentence says what is gone, who uses it, and what for. Packages
are read and not imported, so all of them take a few seconds; what would change in silence is tried beside.
"""

import ast
import re
from dataclasses import dataclass

import pytest
from compat.installed_code import COMPAT, find, is_installed, parameters, seen_with, version
from compat.test_private_names import is_private
from later import needs

pytestmark = pytest.mark.usefixtures("no_collector")


@dataclass(frozen=True)
class Part:
    """A name of a package, the parameters that it is given (`*` for any by position), and what for.

    After a `|` stands what other versions have in its place.
    """

    name: str
    use: str
    takes: str = ""
    file: str = ""
    """Where it is used, if not in the package's module of `compat`: it is no private name, but not a documented one either."""

    def __str__(self) -> str:
        return self.name.partition(":")[2]


_PACKETS = "large data that is sealed here"
_WAITING = "bulk that waits while the transport is full"
_CONFIG = "hosts by OpenSSH's config"
_KEYS = "which host keys are asked for"
_FUNCTIONS = "functions that travel by value"
_CLASSES = "classes that travel by value"
_CELLS = "cells by the numbers that people know"
_GROUPS = "process groups that are cut and formed anew"
_BREAKPOINTS = "collectives that wait for a rank at a breakpoint"
_FSDP = "gradients that an interrupted step has left"
_TENSORS = "tensors that travel"
_PARAMETRIZED = "modules with parametrizations that travel"
_SIMULATION = "CUDA devices that are the CPU"
_BARS = "loops shown as bars"
_DEBUGGED = "cells in which ranks stop at breakpoints"
_UNDEBUGGED = "ranks that go on where their debugger does not start"
_EXCEPTIONS = "kernels and ranks that stop at the exceptions of the user's code alone"
_VALUES = "a variable that cannot be set is not said to have been set"
_ALONE = "configs written without importing TensorFlow"
_SEEDS = "weights that begin alike on all ranks"
_POLICY = "types of layers as the notebook has set them"
_MADE_ANEW = "an Accelerator of a notebook on ranks"
_ARGUMENTS = "a Trainer and its arguments of a notebook on ranks"
_JOINING = "a worker of the pool's cluster"
_REJOINING = "collectives begun anew after a cut"
_PIPELINES = "data sets of a notebook on ranks"
_KNOWING = "an Accelerator that sees the group there is"

_HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler:SubprocessHandler"

PARTS: dict[str, tuple[Part, ...]] = {
    "asyncssh": (
        Part("asyncssh.connection:SSHConnection._compressor", _PACKETS),
        Part("asyncssh.connection:SSHConnection._kex_complete", _PACKETS),
        Part("asyncssh.connection:SSHConnection._rekey_bytes", _PACKETS),
        Part("asyncssh.connection:SSHConnection._rekey_bytes_sent", _PACKETS),
        Part("asyncssh.connection:SSHConnection._send", _PACKETS, "data"),
        Part("asyncssh.connection:SSHConnection._send_encryption", _PACKETS),
        Part("asyncssh.connection:SSHConnection._send_seq", _PACKETS),
        Part("asyncssh.connection:SSHConnection._transport", _WAITING),
        Part("asyncssh.connection:SSHConnection.pause_writing", _WAITING),
        Part("asyncssh.connection:SSHConnection.resume_writing", _WAITING),
        Part("asyncssh.connection:SSHConnection.data_received", _WAITING, "data datatype"),
        Part("asyncssh.channel:SSHChannel._send_buf", _PACKETS),
        Part("asyncssh.channel:SSHChannel._send_chan", _PACKETS),
        Part("asyncssh.channel:SSHChannel._send_pktsize", _PACKETS),
        Part("asyncssh.channel:SSHChannel._send_state", _PACKETS),
        Part("asyncssh.channel:SSHChannel._send_window", _PACKETS),
        Part("asyncssh.encryption:GCMEncryption._cipher", _PACKETS),
        Part("asyncssh.crypto.cipher:GCMCipher._iv", _PACKETS),
        Part("asyncssh.crypto.cipher:GCMCipher._key", _PACKETS),
        Part("asyncssh.crypto.cipher:GCMCipher._update_iv", _PACKETS),
        Part(
            "asyncssh.config:SSHConfig.load",
            _CONFIG,
            "last_config config_paths reload canonical final *args",
        ),
        Part(
            "asyncssh.config:SSHClientConfig",
            _CONFIG,
            "last_config reload canonical final local_user user host port",
        ),
        Part("asyncssh.config:SSHClientConfig._no_split", _CONFIG),
        Part("asyncssh.connection:SSHConnectionOptions.config", _CONFIG),
        Part("asyncssh.config:SSHConfig.parse", _CONFIG, "path"),
        Part("asyncssh.config:SSHConfig.get", _CONFIG, "option default"),
        Part("asyncssh.public_key:get_default_certificate_algs", _KEYS),
        Part("asyncssh.public_key:get_default_public_key_algs", _KEYS),
        Part("asyncssh.known_hosts:SSHKnownHosts.match", _KEYS, "host addr port"),
        Part("asyncssh.known_hosts:SSHKnownHosts.load", _KEYS, "known_hosts"),
    ),
    "debugpy": (
        Part(
            "debugpy._vendored.pydevd._pydev_bundle.pydev_monkey:patch_args",
            _DEBUGGED,
            "args is_exec",
        ),
        Part("debugpy._vendored.pydevd.pydevd_file_utils:exists", _DEBUGGED, "filename"),
        Part("debugpy._vendored.pydevd.pydevd:PyDB.ready_to_run", _UNDEBUGGED),
        Part(
            "debugpy._vendored.pydevd.pydevd:PyDB.exclude_exception_by_filter",
            _EXCEPTIONS,
            "exception_breakpoint trace",
        ),
        Part("debugpy._vendored.pydevd.pydevd:PyDB.in_project_scope", _EXCEPTIONS, "frame"),
        Part(
            "debugpy._vendored.pydevd._pydevd_bundle.pydevd_suspended_frames:_FrameVariable.change_variable",
            _VALUES,
            "name value py_db fmt scope",
        ),
        Part(
            "debugpy._vendored.pydevd._pydevd_bundle.pydevd_vars:change_attr_expression",
            _VALUES,
            "frame attr expression dbg value scope",
        ),
        Part(
            "debugpy._vendored.pydevd._pydevd_bundle.pydevd_constants:get_global_debugger",
            _UNDEBUGGED,
        ),
        Part("debugpy._vendored.pydevd.pydevd:stoptrace", _UNDEBUGGED),
    ),
    "cloudpickle": (
        Part("cloudpickle.cloudpickle:_should_pickle_by_reference", _FUNCTIONS, "obj"),
        Part("cloudpickle.cloudpickle:_PICKLE_BY_VALUE_MODULES", _FUNCTIONS),
        Part("cloudpickle.cloudpickle:Pickler._dynamic_function_reduce", _FUNCTIONS, "func"),
        Part(
            "cloudpickle.cloudpickle:_make_function", _FUNCTIONS, "code globals name argdefs closure"
        ),
        Part("cloudpickle.cloudpickle:_function_setstate", _FUNCTIONS, "obj state"),
        Part("cloudpickle.cloudpickle:_find_imported_submodules", _FUNCTIONS, "code top_level_dependencies"),
        Part("cloudpickle.cloudpickle:_extract_code_globals", _FUNCTIONS, "co"),
        Part("cloudpickle.cloudpickle:_get_cell_contents", _FUNCTIONS, "cell"),
        Part("cloudpickle.cloudpickle:_make_empty_cell", _FUNCTIONS),
        Part("cloudpickle.cloudpickle:_class_reduce", _CLASSES, "obj"),
        Part(
            "cloudpickle.cloudpickle:_make_skeleton_class",
            _CLASSES,
            "type_constructor name bases type_kwargs class_tracker_id",
        ),
        Part("cloudpickle.cloudpickle:_class_setstate", _CLASSES, "obj state"),
        Part("cloudpickle.cloudpickle:_get_or_create_tracker_id", _CLASSES, "class_def"),
    ),
    "IPython": (
        Part("IPython.core.compilerop:CachingCompiler._filename_map", _CELLS),
        Part("IPython.core.compilerop:CachingCompiler.cache", _CELLS, "transformed_code number raw_code"),
        Part("IPython.core.interactiveshell:InteractiveShell._get_exc_info", "groups of exceptions", "exc_tuple"),
        Part("IPython.core.interactiveshell:InteractiveShell._showtraceback", "groups of exceptions", "etype evalue stb"),
        Part("IPython.core.tbtools:TBTools._theme_name", "errors of a cell's syntax"),
        Part("IPython.core.ultratb:FAST_THRESHOLD", "tracebacks through large files"),
        Part("IPython.lib.pretty:_repr_pprint", "results in few lines", "obj p cycle"),
    ),
    "ipykernel": (
        Part("ipykernel.kernelbase:Kernel._shutdown_message", "pools that live on when a kernel is restarted"),
        Part("ipykernel.kernelbase:Kernel.get_parent", "whether a front end shows widgets"),
        Part("ipykernel.kernelbase:Kernel.send_response", "a kernel that is shown to be busy", "stream msg_or_type content"),
    ),
    "ipywidgets": (
        Part("ipywidgets.widgets.widget:Widget._repr_mimebundle_", "the live picture", "**kwargs"),
    ),
    "torch": (
        Part("torch.distributed.distributed_c10d:_world", _GROUPS),
        Part("torch.distributed.distributed_c10d:_World.pg_map", _GROUPS),
        Part("torch.distributed.distributed_c10d:_World.pg_backend_config", _GROUPS),
        Part("torch.distributed.distributed_c10d:_World.group_count", _GROUPS),
        Part("torch.distributed.distributed_c10d:_abort_process_group", _GROUPS, "group"),
        Part("torch.distributed.distributed_c10d:_get_default_timeout", _GROUPS, "backend"),
        Part("torch.distributed.distributed_c10d:_new_process_group_helper", _GROUPS),
        Part("torch.distributed.distributed_c10d:_set_pg_timeout", _BREAKPOINTS, "timeout group"),
        Part(
            "torch.distributed.distributed_c10d:init_process_group",
            _GROUPS,
            "backend init_method timeout world_size rank store group_name pg_options device_id",
        ),
        Part("torch.distributed.rendezvous:_rendezvous_handlers", _GROUPS),
        Part("torch.distributed.fsdp:FSDPModule", _FSDP),
        Part("torch.distributed.fsdp._fully_shard._fully_shard:FSDPModule._get_fsdp_state", _FSDP),
        Part("torch.distributed.fsdp._fully_shard._fsdp_state:FSDPState._fsdp_param_groups|_fsdp_param_group", _FSDP),
        *(
            Part(f"torch.distributed.fsdp._fully_shard._fsdp_state:FSDPState.{name}", _FSDP)
            for name in ("_is_root", "_state_ctx", "_comm_ctx", "_training_state", "_modules_to_run_forward")
        ),
        Part("torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.fsdp_params", _FSDP),
        *(
            Part(f"torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPParamGroup.{name}", _FSDP)
            for name in (
                "_all_gather_result",
                "_all_reduce_state",
                "_partial_reduce_output",
                "_post_forward_indices",
                "_post_reduce_event",
                "_reshard_after_forward_event",
                "_sharded_state",
                "_to_sharded",
                "_training_state",
            )
        ),
        Part("torch.distributed.fsdp._fully_shard._fsdp_param_group:FSDPCommContext._last_post_reduce_events", _FSDP),
        Part("torch.nn.parallel.distributed:DistributedDataParallel._update_process_group", _FSDP, "new_process_group"),
        Part("torch.autograd:_engine_run_backward", _FSDP),
        Part("torch.distributed.fsdp._fully_shard._fsdp_param:FSDPParam._unsharded_param", _FSDP),
        Part("torch.distributed.fsdp._fully_shard._fsdp_param:FSDPParam.unsharded_accumulated_grad", _FSDP),
        Part("torch.nn.utils.parametrize:_inject_new_class", _PARAMETRIZED, "module"),
        Part("torch.nn.utils.parametrize:_inject_property", _PARAMETRIZED, "module tensor_name"),
        Part("torch.utils.data.dataloader:DataLoader._iterator", "loaders whose workers go on"),
        Part("torch._utils:_rebuild_tensor_v3", _TENSORS, "storage storage_offset size stride"),
        Part("torch.storage:TypedStorage", _TENSORS, "*args device dtype wrap_storage _internal"),
        Part("torch.storage:TypedStorage._untyped_storage", _TENSORS),
        Part("torch.nn.modules.module:Module._modules", "names of what cannot be packed"),
        Part("torch.nn.modules.module:Module._parameters", "names of what cannot be packed"),
        Part("torch.nn.modules.module:Module._buffers", "names of what cannot be packed"),
        Part("torch.nn.modules.module:Module._forward_hooks", "models that go home"),
        Part("torch._C._autograd:_profiler_enabled", "recordings beside a profiler of the cell's"),
        Part("torch.utils._device:DeviceContext", _SIMULATION, "device"),
        Part("torch.nn.parameter:UninitializedTensorMixin._allowed_methods", _SIMULATION),
        Part("torch._dynamo:optimize", "a forge that has imported what ranks need"),
        Part("torch._dynamo.eval_frame:OptimizedModule._orig_mod", "sky.rejoin of a compiled model"),
        Part("torch.distributed.tensor._redistribute:logger", "a remark that each rank would make"),
        Part("torch.nn.parallel.distributed:DistributedDataParallel.process_group", "groups that end last"),
        *(
            Part(f"{_HANDLER}.{name}", "workers of torchrun that are forked")
            for name in ("_popen", "_stdout", "_stderr")
        ),
        *(
            Part(f"torch.distributed.elastic.rendezvous.{name}", "restarted workers that meet anew")
            for name in (
                "dynamic_rendezvous:DynamicRendezvousHandler._shared_tcp_store_server",
                "dynamic_rendezvous:DynamicRendezvousHandler._bootstrap_store_info",
                "dynamic_rendezvous:DynamicRendezvousHandler.next_rendezvous",
                "static_tcp_rendezvous:StaticTCPRendezvous.next_rendezvous",
                "static_tcp_rendezvous:StaticTCPRendezvous.num_nodes_waiting",
            )
        ),
    ),
    "jax": (
        Part("jax._src.xla_bridge:_jax|xla_client", "where gloo listens"),
        Part("jax._src.xla_bridge:make_cpu_client", "where gloo listens"),
        Part("jax._src.xla_bridge:backends_are_initialized", "calls that are ahead of other ranks'"),
        Part("jax._src.config:Config.values", "options by the variables of a rank"),
        Part("jax._src.lax.lax:convert_element_type_p", "arrays of a weak type"),
        Part("jax._src.tree_util:_registry", "classes that a notebook has JAX take apart"),
    ),
    "keras": (
        Part("keras.src.utils.progbar:Progbar._values", _BARS),
        Part("keras.src.utils.progbar:Progbar.update", _BARS, "current values finalize"),
        Part("keras.src.utils.progbar:Progbar.target", _BARS),
        Part("keras.src.utils.progbar:Progbar.unit_name", _BARS),
        Part("keras.src.callbacks.progbar_logger:ProgbarLogger.on_train_batch_end", _BARS, "batch logs"),
        Part("keras.src.backend.tensorflow.trainer:TensorFlowTrainer.fit", "a word on training alone"),
        Part("keras.src.backend.tensorflow.trainer:TensorFlowTrainer._distribute_strategy", "a word on training alone"),
        Part("keras.src.backend.torch.trainer:TorchTrainer.fit", "a word on training alone"),
        Part("keras.src.trainers.trainer:Trainer._get_metrics_result_or_logs", "metrics of all ranks", "logs"),
        Part("keras.src.trainers.trainer:Trainer._initial_epoch", "the epoch of a backup, on all ranks"),
        Part("keras.src.backend.jax.trainer:JAXTrainer.fit", "a word on training alone"),
        Part("keras.src.backend.jax.trainer:JAXTrainer.make_predict_function", "predictions of a rank's own rows"),
        Part("keras.src.saving.saving_lib:save_model", "a model saved by one rank"),
        Part("keras.src.saving.saving_lib:save_weights_only", "a model saved by one rank"),
        Part("keras.src.saving.saving_lib:_save_model_to_fileobj", "a model saved by one rank", "model fileobj"),
        Part(
            "keras.src.saving.object_registration:get_registered_name",
            "classes and functions of a notebook that go with a model", "obj",
        ),
        Part("keras.src.saving.object_registration:GLOBAL_CUSTOM_NAMES", "what a notebook has registered"),
        Part("keras.src.layers.layer:Layer._flatten_layers", "layers that stay frozen", "include_self"),
        Part("keras.src.layers.layer:Layer._lock_state", "a model's own compile"),
        Part("keras.src.utils.tracking:Tracker.unlock", "a model's own compile"),
        Part("keras.src.saving.serialization_lib:tf", _ALONE),
        Part("keras.src.utils.module_utils:LazyModule.available", _ALONE),
        Part("keras.src.saving.serialization_lib:_get_class_or_fn_config", "arguments that Keras has not kept", "obj"),
        Part("keras.src.random.seed_generator:python_random", _SEEDS),
        Part("keras.src.random.seed_generator:GLOBAL_SEED_GENERATOR|global_seed_generator", _SEEDS),
        Part("keras.src.utils.rng_utils:get_random_seed|set_random_seed", _SEEDS),
        Part("keras.src.backend.common.global_state:set_global_attribute", _SEEDS, "name value"),
        Part("keras.src.backend.common.global_state:get_global_attribute", _POLICY, "name default"),
    ),
    "tf_keras": (
        Part("tf_keras.src.utils.generic_utils:Progbar._values", _BARS),
        Part("tf_keras.src.utils.generic_utils:Progbar.update", _BARS, "current values finalize"),
        Part("tf_keras.src.callbacks:ProgbarLogger.on_train_batch_end", _BARS, "batch logs"),
    ),
    "tensorflow": (
        Part("tensorflow.python.eager.context:context", _JOINING),
        Part(
            "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function._clone",
            "what `tf.function` made, once it has traced", "python_function",
        ),
        Part(
            "tensorflow.python.eager.context:Context.configure_coordination_service",
            _JOINING,
            "service_type service_leader enable_health_check cluster_register_timeout_in_ms "
            "heartbeat_timeout_in_ms shutdown_barrier_timeout_in_ms coordinated_jobs",
        ),
        Part("tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2:DESCRIPTOR", _JOINING),
        Part("tensorflow.python.eager.context:Context._collective_ops_server_def", _JOINING),
        Part("tensorflow.python.eager.context:Context.configure_collective_ops", _JOINING),
        Part("tensorflow.python.eager.context:Context.enable_collective_ops", _JOINING, "server_def"),
        Part("tensorflow.python.eager.context:Context._logical_devices", _JOINING),
        Part("tensorflow.python.eager.context:Context._context_handle", _REJOINING),
        Part("tensorflow.python.eager.context:Context._initialize_logical_devices", _REJOINING),
        Part("tensorflow.python.eager.context:Context._clear_caches", _REJOINING),
        Part("tensorflow.python.eager.context:Context.abort_collective_ops", _REJOINING, "code message"),
        Part("tensorflow.python.eager.context:Context.set_config_key_value", _REJOINING, "key value"),
        Part("tensorflow.python.eager.context:Context.get_config_key_value", _REJOINING, "key timeout_in_ms"),
        Part("tensorflow.python._pywrap_tfe:TFE_EnableCollectiveOps", _REJOINING, "*"),
        Part("tensorflow.python.framework.errors_impl:UNAVAILABLE", _REJOINING),
        Part("tensorflow.python.framework.errors_impl:DeadlineExceededError", _REJOINING),
        Part("tensorflow.python.framework.errors_impl:NotFoundError", _REJOINING),
        Part("tensorflow.python.eager.cancellation:CancellationManager.start_cancel", _REJOINING),
        Part("tensorflow.python.eager.cancellation:CancellationManagerContext", _REJOINING, "cancellation_manager"),
        Part(
            "tensorflow.python.distribute.collective_all_reduce_strategy:"
            "CollectiveAllReduceStrategy._collective_key_base",
            _REJOINING,
        ),
        Part(
            "tensorflow.python.distribute.collective_all_reduce_strategy:"
            "CollectiveAllReduceExtended._num_workers",
            "a word on training alone",
        ),
        Part("tensorflow.python.distribute.cross_device_utils:INSTANCE_KEY_START_NUMBER", _REJOINING),
        Part("tensorflow.python.distribute.cross_device_utils:CollectiveKeys._instance_key_table", _REJOINING),
        Part("tensorflow.python.data.ops.dataset_ops:DatasetV2._as_serialized_graph", _PIPELINES, "*"),
        Part("tensorflow.python.data.ops.dataset_ops:_VariantDataset.__init__", _PIPELINES, "dataset_variant element_spec"),
        Part("tensorflow.python.ops.gen_experimental_dataset_ops:dataset_from_graph", _PIPELINES, "graph_def"),
        Part("tensorflow.python.data.ops.options:ExternalStatePolicy.IGNORE", _PIPELINES),
        Part("tensorflow.python.autograph.pyct.loader:tempfile", "generated code that goes with its pool"),
        Part("tensorflow.python.ops.collective_ops:all_reduce_v2", "a barrier", "t group_size group_key instance_key"),
    ),
    "accelerate": (
        Part("accelerate.state:PartialState._shared_state", _KNOWING),
        Part("accelerate.state:PartialState._reset_state", _KNOWING),
        Part("accelerate.state:AcceleratorState._shared_state", _KNOWING),
        Part("accelerate.state:AcceleratorState._reset_state", _KNOWING, "reset_partial_state"),
        Part("accelerate.state:GradientState._shared_state", _KNOWING),
        Part("accelerate.state:GradientState._reset_state", _KNOWING),
        Part("accelerate.state:GradientState.dataloader_references", _KNOWING),
        Part("accelerate.state:GradientState.sync_gradients", _KNOWING),
        Part("accelerate.state:PartialState._cpu", _MADE_ANEW),
        Part("accelerate.state:AcceleratorState._mixed_precision", _MADE_ANEW),
        Part("accelerate.state:AcceleratorState.__init__", _MADE_ANEW, "mixed_precision cpu"),
        Part("accelerate.state:GradientState.plugin_kwargs", _MADE_ANEW),
        Part("accelerate.accelerator:Accelerator.prepare_model", _MADE_ANEW, "model device_placement"),
        Part("accelerate.accelerator:Accelerator._custom_objects", _MADE_ANEW),
        Part("accelerate.accelerator:Accelerator._models", _MADE_ANEW),
        Part("accelerate.accelerator:Accelerator._optimizers", _MADE_ANEW),
        Part("accelerate.accelerator:Accelerator._schedulers", _MADE_ANEW),
        Part("accelerate.accelerator:Accelerator._dataloaders", _MADE_ANEW),
    ),
    "transformers": (
        Part("transformers.modeling_utils:PreTrainedModel._tp_plan", "a model's own plan"),
        Part("transformers.modeling_utils:PreTrainedModel._no_split_modules", "a model's own blocks"),
        Part("transformers.training_args:TrainingArguments._setup_devices", _ARGUMENTS),
        Part("transformers.training_args:TrainingArguments.distributed_state", _ARGUMENTS),
        Part("transformers.training_args:TrainingArguments._n_gpu", _ARGUMENTS),
        Part("transformers.trainer:Trainer.create_accelerator_and_postprocess", _ARGUMENTS),
        Part("transformers.trainer:Trainer.accelerator", _ARGUMENTS),
        Part("transformers.trainer:Trainer.gather_function", _ARGUMENTS),
        Part("transformers.trainer:Trainer.callback_handler", _ARGUMENTS),
        Part("transformers.trainer_callback:CallbackHandler.on_log", _BARS, "args state control logs", "runtime/transformers_bars.py"),
        Part("transformers.trainer:DEFAULT_PROGRESS_CALLBACK", _BARS, file="runtime/transformers_bars.py"),
    ),
    "tqdm": (
        Part("tqdm.utils:ObjectWrapper", _BARS, "wrapped"),
        Part("tqdm.std:tqdm", _BARS, "iterable desc total leave file"),
    ),
}  # fmt: skip
ELSEWHERE = {
    "asyncssh": {"_cipher"},
    "cloudpickle": {"_cloudpickle_submodules"},
    "accelerate": {"_is_accelerate_prepared", "_original_forward"},
    "transformers": {"_eval_dataloaders"},
    "jax": {"_xla", "make_gloo_tcp_collectives"},
    "torch": {
        "_dump_nccl_trace",
        "_distributed_c10d",
        "_C",
        "_Options",
        "_autograd",
        "_check_reducer_finalized",
        "_current_graph_task_id",
        "_device_types",
        "_devices",
        "_get_backend",
        "_get_sequence_number_for_group",
        "_hooks",
        "_internal",
        "_opt_called",
        "_register_backend",
        "_set_sequence_number_for_group",
        "_threads",
        "_timeout",
        "_is_torch_compile",
        "_torchdynamo_",
        "_torchdynamo_orig_callable",
        "_torchdynamo_wrapper_id",
        "_wrapped_by_lr_sched",
    },
    "keras": {
        "_use_cached_eval_dataset",
        "_auto_config",
        "_compile_config",
        "_layers",
        "_skyward_nb_state",
        "_tracker",
    },
    "tqdm": {"_wrapped"},
}
"""Names that are no definitions: keys, parameters, ends of names, what torch had before. Tried beside, or below."""
FILES = {"tf_keras": "keras_private.py"}
BESIDE = {
    "keras_states_private.py": "keras",
    "torch_elastic_private.py": "torch",
    "torch_models_private.py": "torch",
}
"""Second modules of packages with more than one module has room for."""
CASES = [pytest.param(package, part, id=f"{package}-{part}") for package, parts in PARTS.items() for part in parts]  # fmt: skip


def file_of(package: str) -> str:
    """The module of `compat` that uses a package's names."""
    return FILES.get(package, f"{package.lower()}_private.py")


def changed(package: str, part: Part, how: str) -> str:
    """The sentence that says what has changed."""
    file = file_of(package)
    return (
        f"{package} {version(package)} {how}: used by skyward_nb/{part.file or f'compat/{file}'} for {part.use}; "
        f"seen with {seen_with(file)}"
    )


@pytest.mark.parametrize(("package", "part"), CASES)
def test_it_is_there(package, part):
    if not is_installed(package):
        pytest.skip(f"{package} is not installed")
    module, _, name = part.name.partition(":")
    scope, dot, names = name.rpartition(".")
    there = (find(module, f"{scope}{dot}{each}") for each in names.split("|"))
    found = next((each for each in there if each is not None), None)
    assert found is not None, changed(package, part, f"has no {module}.{name} any more")
    takes = part.takes.split()
    if takes and takes != ["*"]:
        has = parameters(found)
        assert has[: len(takes)] == takes, changed(
            package, part, f"has {name}({', '.join(has)}), no longer ({', '.join(takes)}, …)"
        )


@pytest.mark.parametrize("path", sorted(COMPAT.glob("*_private.py")), ids=lambda path: path.stem)
def test_each_private_name_has_a_case(path):
    """What a module of `compat` uses is tried here."""
    packages = [each for each in PARTS if file_of(each) == path.name]
    packages = packages or [BESIDE.get(path.name, "python")]
    tried = {
        word
        for package in packages
        for part in PARTS.get(package, ())
        for word in re.split(r"[:.|]", part.name)
    }
    tried |= {name for package in packages for name in ELSEWHERE.get(package, ())}
    own: set[str] = (
        {"_python_exit", "_shutdown", "_registry", "_data"} if packages == ["python"] else set()
    )
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.Name(id=name, ctx=ast.Store())
            ):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.alias(asname=str(name)):
                own.add(name)
            case _:
                pass
    used: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.ImportFrom(module=str(module), names=names):
                used |= {*module.split("."), *(each.name for each in names)}
            case ast.Constant(value=str(text)) if all(p.isidentifier() for p in text.split(".")):
                used |= {*text.split(".")}
            case _:
                pass
    without = {name for name in used if is_private(name)} - own - tried
    assert not without, f"{path.name} uses {sorted(without)}: a row of PARTS says what for"


@needs("keras")
@pytest.mark.parametrize("trainer", ["tensorflow", "torch"])
def test_keras_says_that_an_evaluation_is_one_of_fit(trainer):
    module = f"keras.src.backend.{trainer}.trainer"
    name = {"tensorflow": "TensorFlowTrainer", "torch": "TorchTrainer"}[trainer]
    fit = ast.unparse(find(module, f"{name}.fit") or ast.Pass())
    assert "_use_cached_eval_dataset=True" in fit, (
        f"keras {version('keras')} evaluates in `fit` without `_use_cached_eval_dataset`: validation is of one "
        "rank's rows alone (compat/keras_private.py)"
    )


@needs("keras")
def test_keras_draws_default_seeds_from_what_is_put_in_its_place():
    drawn = ast.unparse(find("keras.src.random.seed_generator", "make_default_seed") or ast.Pass())
    assert "python_random.randint(" in drawn, (
        f"keras {version('keras')} draws default seeds from something else than `python_random`: weights "
        "begin differently on each rank (compat/keras_private.py)"
    )

"""The kernel "Python on a pool": ipykernel's own, in which every cell runs on ranks from the start."""

from __future__ import annotations

import shlex
from typing import Any, ClassVar

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from traitlets import Type, Unicode

import skyward_nb as sky
from skyward_nb.notebook.magics import every_cell_of
from skyward_nb.options.option_line import parse_settings
from skyward_nb.words.errors import OptionError


class PoolKernel(IPythonKernel):
    """A kernel of Python; what makes its cells run on ranks is turned on in its shell."""

    options: Any = Unicode(
        "", help="Defaults of its pools and runs, as %%sky_remote takes them."
    ).tag(config=True)


class PoolKernelApp(IPKernelApp):
    """Starts it: the extension is loaded, and every cell runs on ranks."""

    name: Any = Unicode("skyward_nb-kernel")
    kernel_class: Any = Type(PoolKernel, klass=PoolKernel)
    classes: ClassVar[Any] = [*IPKernelApp.classes, PoolKernel]

    def init_extensions(self) -> None:
        """Load the user's extensions, and this one."""
        super().init_extensions()
        kernel: Any = self.kernel
        shell = kernel.shell
        sky.load_ipython_extension(shell)
        # As `display` is there, and as little a name of the person's own.
        shell.push({"sky": sky}, interactive=False)
        every_cell = every_cell_of(shell)
        every_cell.ends_at_restart = True
        settings: dict[str, str] = {}
        try:
            settings = parse_settings(kernel.options)
        except OptionError as error:
            # A kernel that does not start says nothing; a cell does.
            every_cell.trouble = (
                f"{error} (an option of this kernel: {shlex.quote(kernel.options)}). Install it "
                "again with others: python -m skyward_nb.kernel install"
            )
        every_cell.install(settings, "the kernel")

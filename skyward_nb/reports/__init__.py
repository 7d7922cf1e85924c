"""Reports to a person: how runs ended, lists of pools, their cost, their defects."""

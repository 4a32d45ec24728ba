"""The methods, one file each, registered in `cbe.spec.registry`."""

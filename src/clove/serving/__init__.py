"""A finished run at the service of newcomers, who keep their data to themselves."""

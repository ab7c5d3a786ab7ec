"""symlab publish: a set of records for publication, world by world, that any later call goes on with."""

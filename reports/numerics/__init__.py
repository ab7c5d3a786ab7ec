"""What records say of errors: accuracy over sizes, studies over ranks."""

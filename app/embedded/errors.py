"""The one error of the embedded PostgreSQL: a message for the operator. The CLI prints it and exits with 2."""


class EmbeddedPostgresError(RuntimeError):
    """The embedded PostgreSQL cannot be used; the text is one line that names what to do."""

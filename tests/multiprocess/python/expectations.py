"""What the tests of both Python packages say about errors."""


def expect_error(kind, text, call):
    """The call raises `kind` with `text` in it."""
    try:
        call()
    except kind as failure:
        assert text in str(failure), f"{failure!r} does not say {text!r}"
        return failure
    raise AssertionError(f"no {kind.__name__} that says {text!r}")

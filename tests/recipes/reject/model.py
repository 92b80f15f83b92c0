def load():
    raise AssertionError("a check must not run the model's code")


raise AssertionError("a check must not import the model's file")

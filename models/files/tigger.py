"""placeholder"""


def read_tigger(path): ...
def write_tigger(model, path): ...
def is_tigger(text):
    return False

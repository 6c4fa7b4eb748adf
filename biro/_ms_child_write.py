"""Writing a column in the child process."""


class Writer:
    def __init__(self, link):
        self.link = link

    def prepare(self):
        pass

    def write(self):
        pass

    def finish(self):
        pass

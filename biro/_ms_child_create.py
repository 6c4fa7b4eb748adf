"""Creating a Measurement Set in the child process."""


class Creator:
    def __init__(self, link):
        self.link = link

    def create(self):
        pass

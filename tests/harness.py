"""What the check_*.py have in common: where things are, and the count of what passed."""

import os

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
EINNET = os.environ.get("EINNET", os.path.join(ROOT, "build", "einnet"))
JUDGE = os.path.join(HERE, "judge", "judgecc")


class Checks:
    """Counts checks; one that fails prints its name and why."""

    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, right, why=""):
        self.passed += bool(right)
        self.failed += not right
        if not right:
            print("FAIL %s%s" % (name, ": %s" % (why,) if why else ""), flush=True)

    def none(self, name, problems):
        """One check, for which all of `problems` must be missing."""
        self.check(name, not problems, "\n     ".join(problems))

    def finish(self):
        """The last line of a part's output; its exit status."""
        print("%d passed, %d failed" % (self.passed, self.failed))
        return 1 if self.failed else 0

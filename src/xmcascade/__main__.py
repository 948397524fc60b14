"""`python -m xmcascade` and the command `xmcascade` start here: Ctrl-C is quiet from the first moment."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from xmcascade.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

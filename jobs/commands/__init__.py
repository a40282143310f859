"""One command a module: arguments, and what is printed; the work is in `prep` and `runtime`."""

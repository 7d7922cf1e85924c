"""VS Code with Microsoft's Jupyter extension, in a browser; `make test-vscode` builds it and runs these."""

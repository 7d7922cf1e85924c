"""Tests in JupyterLab and Chromium, which one server, one browser and one page serve."""

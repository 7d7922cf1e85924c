"""Rich. (Being built.)"""

import html


def rich_html(data, what):
    for mime in ("image/png", "image/jpeg"):
        if mime in data:
            return f'<img alt="{what}" src="data:{mime};base64,{data[mime]}">'
    return data.get("text/html") or f"<pre>{html.escape(data.get('text/plain', ''))}</pre>"

"""Uses docs/examples/clients/crier.py together with a client that openapi-python-client generated.

    CRIER_URL=http://… CRIER_KEY=svc_live_… python3 generated.py
"""

import os
import uuid

import httpx
from crier import Crier
from crier_client import AuthenticatedClient
from crier_client.api.posts import create_post, get_post_status
from crier_client.api.reports import download_report_delivery
from crier_client.models.error_envelope import ErrorEnvelope
from crier_client.models.new_post import NewPost
from crier_client.models.post import Post
from crier_client.models.post_detail import PostDetail

URL, KEY = os.environ["CRIER_URL"], os.environ["CRIER_KEY"]
crier = Crier(URL, KEY, sleep=lambda pause: None)

# The models with the requests of crier.py.
post = NewPost(content="Draft")
created = PostDetail.from_dict(crier.post("/brands/1/posts", post.to_dict())["data"])
assert created.targets == [], created
listed = Post.from_dict(next(crier.list("/brands/1/posts")))
assert listed.id == created.id, listed

# The functions, without retries. Their paths are relative to the URL of the API.
client = AuthenticatedClient(base_url=crier.base_url, token=KEY)
key = str(uuid.uuid4())
try:
    create_post.sync(1, client=client, body=post, idempotency_key=key)
    raise AssertionError("the proxy cuts the connection of the first request")
except httpx.RemoteProtocolError:
    pass
made = create_post.sync(1, client=client, body=post, idempotency_key=key)
assert made is not None and not isinstance(made, ErrorEnvelope), made
assert made.data.status == "draft", made
missing = get_post_status.sync(1, 999_999, client=client)
assert isinstance(missing, ErrorEnvelope) and missing.error.code == "not_found", missing

# A file is the `content` of the detailed response.
patient = Crier(URL, KEY)
report = crier.post("/brands/1/reports", {"name": "Posts", "widgets": [{"type": "posts_table"}]})["data"]
delivery = crier.post(f"/brands/1/reports/{report['id']}/export", {"format": "csv"})["data"]
patient.wait_for_report(1, delivery["id"], pause=0.02)
file = download_report_delivery.sync_detailed(1, delivery["id"], client=client)
assert file.status_code == 200 and file.content, file.status_code
print("  ok      Python: the generated client")

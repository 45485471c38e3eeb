"""Crier's MCP server with the official client for Python: `client.py modern|legacy…`

scripts/mcp sets the environment. `modern` is revision 2026-07-28, `legacy` is 2025-11-25. The scenarios depend on each
other: if one fails, read its line before those that follow.
"""

import asyncio
import json
import os
import re
import sys
import uuid
from datetime import datetime, timedelta, timezone

import httpx2
import jsonschema
from chat import VERSIONS, User, connect
from checks import check, expect, expect_equal
from mcp import MCPError

URL, API = os.environ["MCP_URL"], os.environ["API_URL"]
KEY, READ_KEY = os.environ["KEY"], os.environ["READ_KEY"]

READING = {
    "list_brands", "list_accounts", "next_slots", "validate_post", "get_media_import", "list_posts", "get_post",
    "get_analytics", "list_conversations", "get_conversation", "get_reports",
}
WRITING = {
    "save_draft", "import_media", "schedule_post", "publish_post", "unpublish_post", "reply_to_conversation",
    "generate_captions", "generate_hashtags", "export_report",
}
HINTS = ["read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint"]


def schema_problem(schema):
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return error.message
    return None if schema.get("type") == "object" else "its type is not object"


class Scenarios:
    def __init__(self, era):
        self.era = era

    def check(self, name):
        return check(f"python, {self.era}: {name}")

    async def run(self):
        with self.check("connects"):
            async with connect(URL, KEY, self.era) as chat:
                expect_equal(chat.client.protocol_version, VERSIONS[self.era], "the protocol version")
                await self.lists_tools(chat)
                await self.finds_account(chat)
                await self.mends_post(chat)
                await self.schedules(chat)
                await self.publishes(chat)
                await self.finds_failure(chat)
                await self.repeats_call(chat)
                await self.replies(chat)
                await self.calls_the_rest(chat)
        with self.check("connects with a read-only key"):
            async with connect(URL, READ_KEY, self.era) as chat:
                await self.only_reads(chat)
        with self.check("connects with forms"):
            await self.answers_forms()

    async def lists_tools(self, chat):
        with self.check("a full key lists all tools"):
            tools, page = await chat.list()
            expect_equal({tool.name for tool in tools}, READING | WRITING, "the list")
        with self.check("the tools have names of at most 64 characters, titles and descriptions"):
            wrong = [t.name for t in tools if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", t.name)]
            wrong += [t.name for t in tools if not t.title or not t.description]
            expect_equal(wrong, [], "the list of tools without them")
        with self.check("the tools have all four hints, and only reading tools are read-only"):
            missing = [t.name for t in tools for h in HINTS if getattr(t.annotations, h, None) is None]
            expect_equal(missing, [], "the list of tools without a hint")
            expect_equal({t.name for t in tools if t.annotations.read_only_hint}, READING, "the set of reading tools")
        with self.check("the schemas are valid"):
            schemas = [(t.name, s) for t in tools for s in (t.input_schema, t.output_schema) if s is not None]
            wrong = [f"{name}: {problem}" for name, schema in schemas if (problem := schema_problem(schema))]
            expect_equal(wrong, [], "the list of invalid schemas")
        with self.check("the list has a stable order"):
            again, _ = await chat.list()
            expect_equal([t.name for t in again], [t.name for t in tools], "the second list")
        if self.era == "modern":
            with self.check("the list is cached for one key only"):
                expect_equal(page.cache_scope, "private", "cacheScope")

    async def finds_account(self, chat):
        with self.check("finds the brand and its accounts"):
            brands = await chat.data("list_brands")
            self.brand = {"brand_id": brands[0]["id"]}
            accounts = await chat.data("list_accounts", **self.brand)
            (self.good, self.handle), (self.bad, _) = [(account["id"], account["username"]) for account in accounts[:2]]
        with self.check("structuredContent is also in the text"):
            result = await chat.client.call_tool("list_brands", {})
            expect_equal(json.loads(result.content[0].text), result.structured_content, "the text")

    async def mends_post(self, chat):
        """A model repairs its arguments with nothing but the paths in the error."""
        tomorrow = (datetime.now(timezone.utc) + timedelta(days=1)).isoformat(timespec="seconds")
        right = {"schedule_type": "draft", "scheduled_at": tomorrow, "accounts.0": self.good}
        post = {"content": "Fresh bread", "schedule_type": "soon", "scheduled_at": "tomorrow", "accounts": ["demo"]}
        with self.check("bad arguments are errors with paths, by which the post is fixed"):
            error = await chat.error("validate_post", **self.brand, **post)
            expect_equal(error.code, "validation_failed", "error.code")
            expect_equal(set(error.fields), set(right), "the set of paths")
            for path in error.fields:
                name, _, position = path.partition(".")
                if position:
                    post[name][int(position)] = right[path]
                else:
                    post[name] = right[path]
            expect((await chat.data("validate_post", **self.brand, **post))["valid"], "the post is not valid")
        with self.check("a platform's problem names its field"):
            post["content"] = "x" * 6000
            validation = await chat.data("validate_post", **self.brand, **post)
            expect(not validation["valid"], "a text that is too long is valid")
            expect_equal(validation["targets"][0]["problems"][0]["field"], "content", "the field")
        with self.check("saves a draft"):
            draft = await chat.data("save_draft", **self.brand, content="Fresh bread", accounts=[self.good])
            expect_equal(draft["status"], "draft", "the status")
            self.post = {**self.brand, "post_id": draft["id"]}
        with self.check("updates the draft"):
            updated = await chat.data("save_draft", **self.post, content="Fresh bread at 7 o'clock")
            expect_equal(updated["id"], draft["id"], "the id")
            expect_equal(updated["content"], "Fresh bread at 7 o'clock", "the content")
            expect_equal(updated["status"], "draft", "the status")
        with self.check("a post of another brand is forbidden"):
            error = await chat.error("get_post", brand_id=999999, post_id=draft["id"])
            expect_equal(error.code, "brand_forbidden", "error.code")

    async def schedules(self, chat):
        with self.check("schedules the draft with a confirmation"):
            time = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=2)
            post = await chat.confirmed("schedule_post", **self.post, scheduled_at=time.isoformat())
            expect_equal(post["status"], "scheduled", "the status")
            expect_equal(datetime.fromisoformat(post["scheduled_at"]), time, "the time")
        with self.check("lists the scheduled post"):
            posts = await chat.call("list_posts", **self.brand, status="scheduled")
            expect(self.post["post_id"] in [post["id"] for post in posts["data"]], "the post is missing")
        with self.check("schedules another one at the next free slot of the queue"):
            slots = await chat.data("next_slots", **self.brand, count=2)
            expect_equal(len(slots), 2, "the number of slots")
            draft = await chat.data("save_draft", **self.brand, content="Queued", accounts=[self.good])
            post = await chat.confirmed("schedule_post", **self.brand, post_id=draft["id"])
            expect_equal(post["scheduled_at"], slots[0]["scheduled_at"], "the time")
        with self.check("lists the posts page by page"):
            ids, cursor = [], {}
            while cursor is not None:
                page = await chat.call("list_posts", **self.brand, limit=1, **cursor)
                ids += [post["id"] for post in page["data"]]
                cursor = {"cursor": page["next_cursor"]} if "next_cursor" in page else None
            expect_equal(len(ids), len(set(ids)), "the number of posts")
            expect({self.post["post_id"], draft["id"]} <= set(ids), f"the pages have only {ids}")

    async def publishes(self, chat):
        draft = await chat.data("save_draft", **self.brand, content=f"Now {uuid.uuid4()}", accounts=[self.good])
        post = {**self.brand, "post_id": draft["id"]}
        with self.check("does not publish without a confirmation"):
            error = await chat.error("publish_post", **post)
            expect("confirm" in error.text, f"the error does not name `confirm`: {error.text}")
            await chat.error("publish_post", **post, confirm="another code")
            expect_equal((await chat.data("get_post", **post))["status"], "draft", "the status")
        with self.check("the question has every text that others will see"):
            texts = ["for this account", "the second part", "the first comment"]
            mixed = await chat.data(
                "save_draft", **self.brand, content="For no account", accounts=[self.good],
                overrides=[{"account_id": self.good, "content": texts[0]}],
                thread=[{"content": texts[1]}], first_comment={"content": texts[2]},
            )
            error = await chat.error("publish_post", **self.brand, post_id=mixed["id"])
            missing = [text for text in texts if text not in error.text]
            expect_equal(missing, [], f"the list of texts that are not in {error.text!r}")
        with self.check("publishes with a confirmation"):
            await chat.confirmed("publish_post", **post)
            published = await chat.post_with(lambda p: p["status"] == "published", **post)
            self.published = {**post, "external_id": published["targets"][0]["external_id"]}
        with self.check("a draft cannot become a published post in one call"):
            content = f"Immediately {uuid.uuid4()}"
            error = await chat.error(
                "save_draft", **self.brand, content=content, accounts=[self.good], schedule_type="now"
            )
            expect_equal(list(error.fields), ["schedule_type"], "the list of paths")
            posts = await chat.data("list_posts", **self.brand, search=content.split()[1])
            expect_equal(posts, [], "the list of posts")

    async def finds_failure(self, chat):
        failing = [{"account_id": self.bad, "content": f"[fail] {uuid.uuid4()}"}]
        both = [self.good, self.bad]
        content = f"For both {uuid.uuid4()}"
        draft = await chat.data("save_draft", **self.brand, content=content, accounts=both, overrides=failing)
        post = {**self.brand, "post_id": draft["id"]}
        with self.check("finds the account that rejected the post, and the reason"):
            await chat.confirmed("publish_post", **post)
            result = await chat.post_with(lambda p: p["status"] == "partially_published", **post)
            failed = [target for target in result["targets"] if target["status"] == "failed"]
            expect_equal([target["account_id"] for target in failed], [self.bad], "the list of failed accounts")
            expect("[fail]" in failed[0]["error"]["message"], f"the reason is {failed[0]['error']}")
            attempts = (await chat.call("get_post", **post))["attempts"]
            expect("[fail]" in json.dumps(attempts), f"the attempts are {attempts}")
        with self.check("fixes the text, and publishes where it failed"):
            fixed = [{"account_id": self.bad, "content": f"Fixed {uuid.uuid4()}"}]
            await chat.data("save_draft", **post, overrides=fixed)
            await chat.confirmed("publish_post", **post)
            await chat.post_with(lambda p: p["status"] == "published", **post)
        with self.check("unpublishes with a confirmation"):
            await chat.confirmed("unpublish_post", **post, accounts=[self.good])
            await chat.post_with(lambda p: "unpublished" in [t["status"] for t in p["targets"]], **post)

    async def repeats_call(self, chat):
        with self.check("a repeated call with the same key creates nothing"):
            arguments = {**self.brand, "content": "Once", "idempotency_key": str(uuid.uuid4())}
            first = await chat.data("save_draft", **arguments)
            second = await chat.data("save_draft", **arguments)
            expect_equal(second["id"], first["id"], "the second id")
        with self.check("another call with the same key is an error"):
            error = await chat.error("save_draft", **{**arguments, "content": "Twice"})
            expect_equal(error.code, "idempotency_key_reused", "error.code")
        with self.check("a call without a key returns one"):
            del arguments["idempotency_key"]
            first = await chat.call("save_draft", **arguments)
            second = await chat.call("save_draft", **arguments, idempotency_key=first["idempotency_key"])
            expect_equal(second["data"]["id"], first["data"]["id"], "the second id")

    async def replies(self, chat):
        body, reply = f"When do you open? {uuid.uuid4()}", f"At seven. {uuid.uuid4()}"
        page = f"{API}/sandbox/{self.handle}"
        async with httpx2.AsyncClient(timeout=30, follow_redirects=True) as http:
            with self.check("finds a comment"):
                comments = f"{page}/posts/{self.published['external_id']}/comments"
                (await http.post(comments, data={"name": "Vera", "body": body})).raise_for_status()
                sync = f"{API}/api/public/v1/brands/{self.brand['brand_id']}/social-accounts/{self.good}/sync"
                for _ in range(180):
                    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": str(uuid.uuid4())}
                    await http.post(sync, headers=headers)
                    found = await chat.data("list_conversations", **self.brand, search=body.split()[-1])
                    if found:
                        break
                    await asyncio.sleep(0.5)
                expect(found, "the comment is not in the inbox")
                conversation = {**self.brand, "conversation_id": found[0]["id"]}
                full = await chat.call("get_conversation", **conversation)
                expect(body in json.dumps(full["data"]["messages"]), f"its text is missing: {full}")
            with self.check("says which texts others wrote"):
                expect("data.messages[]" in full["untrusted"]["fields"], f"untrusted is {full.get('untrusted')}")
            with self.check("replies to the comment with a confirmation"):
                await chat.confirmed("reply_to_conversation", **conversation, body=reply)
                for _ in range(450):
                    if reply in (await http.get(page)).text:
                        return
                    await asyncio.sleep(0.2)
                raise AssertionError("the reply is not on the page of the sandbox")

    async def calls_the_rest(self, chat):
        """Every tool that the conversation does not need."""
        with self.check("calls get_analytics"):
            analytics = await chat.call("get_analytics", **self.brand)
            expect({"top_posts", "best_times", "accounts"} <= set(analytics), f"the result has only {set(analytics)}")
        with self.check("exports a report, and gets it"):
            headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": str(uuid.uuid4())}
            async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
                url = f"{API}/api/public/v1/brands/{self.brand['brand_id']}/reports"
                created = await http.post(url, json={"name": "June", "widgets": [{"type": "summary"}]})
            report = {**self.brand, "report_id": created.raise_for_status().json()["data"]["id"]}
            expect(await chat.data("get_reports", **self.brand), "the list of reports is empty")
            await chat.data("export_report", **report, format="csv")
            found = await chat.call("get_reports", **report)
            expect_equal(found["data"]["name"], "June", "the name")
            expect_equal(len(found["exports"]), 1, "the number of exports")
        with self.check("an import without a URL is an error with its path"):
            error = await chat.error("import_media", **self.brand)
            expect("url" in error.fields, f"the paths are {set(error.fields)}")
        with self.check("an import from a private address is an error"):
            error = await chat.error("import_media", **self.brand, url="http://127.0.0.1:1/image.png")
            expect_equal(error.code, "invalid_source_url", "error.code")
        with self.check("get_media_import of no import is an error"):
            error = await chat.error("get_media_import", **self.brand, job_id=999999)
            expect_equal(error.code, "not_found", "error.code")
        texts = {"generate_captions": {"prompt": "Bread"}, "generate_hashtags": {"content": "Bread"}}
        for tool, arguments in texts.items():
            with self.check(f"{tool} without an AI provider is an error"):
                error = await chat.error(tool, **self.brand, **arguments)
                expect(error.code, f"the error has no code: {error.text}")
        with self.check("an unknown tool is an error"):
            try:
                result = await chat.client.call_tool("delete_everything", {})
                expect(result.is_error, "it succeeded")
            except AssertionError:
                raise
            except Exception as error:
                expect(isinstance(error, MCPError), f"the error is {error!r}")

    async def only_reads(self, chat):
        with self.check("a read-only key lists only reading tools"):
            tools, _ = await chat.list()
            expect_equal({tool.name for tool in tools}, READING, "the list")
        with self.check("a read-only key reads"):
            expect(await chat.data("list_posts", **self.brand), "the list of posts is empty")
        with self.check("a read-only key cannot write"):
            content = f"Not mine {uuid.uuid4()}"
            try:
                result = await chat.client.call_tool("save_draft", {**self.brand, "content": content})
                expect(result.is_error, "it created a post")
            except AssertionError:
                raise
            except Exception:
                pass # An error of the protocol is as good: the tool is not in the list.
            posts = await chat.data("list_posts", **self.brand, search=content.split()[-1])
            expect_equal(posts, [], "the list of posts")

    async def answers_forms(self):
        """A stateless server can ask in a form only in the modern era. In the legacy era, it needs `confirm`."""
        async with connect(URL, KEY, self.era) as chat:
            drafts = [
                await chat.data("save_draft", **self.brand, content=f"Form {uuid.uuid4()}", accounts=[self.good])
                for _ in range(3)
            ]
            posts = [{**self.brand, "post_id": draft["id"]} for draft in drafts]
            if self.era == "legacy":
                user = User("accept")
                async with connect(URL, KEY, self.era, user) as asking:
                    with self.check("a client with forms confirms with an argument too"):
                        await asking.confirmed("publish_post", **posts[0])
                return
            for post, user, name in [
                (posts[0], User("decline"), "declined"),
                (posts[0], User("cancel"), "cancelled"),
                (posts[0], User("accept", agrees=False), "answered with no"),
            ]:
                with self.check(f"does not publish if the form is {name}"):
                    async with connect(URL, KEY, self.era, user) as asking:
                        await asking.error("publish_post", **post)
                    expect_equal(len(user.forms), 1, "the number of forms")
                    expect_equal((await chat.data("get_post", **post))["status"], "draft", "the status")
            with self.check("publishes if the form is accepted"):
                user = User("accept")
                async with connect(URL, KEY, self.era, user) as asking:
                    await asking.data("publish_post", **posts[1])
                expect_equal(len(user.forms), 1, "the number of forms")
                await chat.post_with(lambda p: p["status"] == "published", **posts[1])
            with self.check("ignores `confirm` of a model if it can ask the user"):
                user = User("decline")
                async with connect(URL, KEY, self.era, user) as asking:
                    await asking.error("publish_post", **posts[2], confirm="another code")
                expect_equal(len(user.forms), 1, "the number of forms")
                expect_equal((await chat.data("get_post", **posts[2]))["status"], "draft", "the status")


for era in sys.argv[1:]:
    asyncio.run(Scenarios(era).run())

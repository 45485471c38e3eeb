"""A client of Crier's MCP server, as the scenarios use it."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import jsonschema
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

VERSIONS = {"modern": "2026-07-28", "legacy": "2025-11-25"}


class ToolError(Exception):
    """A result with `isError`."""

    def __init__(self, name, result):
        self.text = "\n".join(block.text for block in result.content if block.type == "text")
        self.body = result.structured_content or {}
        super().__init__(f"{name}: {self.text}")

    @property
    def code(self):
        return self.body.get("error", {}).get("code")

    @property
    def fields(self):
        return self.body.get("error", {}).get("fields", {})


class Chat:
    """The tools as methods: `call` returns the API's response body."""

    def __init__(self, client):
        self.client = client
        self.schemas = {}

    async def list(self):
        tools, cursor = [], None
        while True:
            page = await self.client.list_tools(cursor=cursor, cache_mode="bypass")
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                self.schemas = {tool.name: tool.output_schema for tool in tools}
                return tools, page

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            raise ToolError(tool, result)
        body = result.structured_content
        if not isinstance(body, dict) or "data" not in body:
            raise AssertionError(f"the structuredContent of {tool} has no `data`: {str(body)[:200]}")
        if schema := self.schemas.get(tool):
            jsonschema.validate(body, schema)
        return body

    async def data(self, tool, **arguments):
        return (await self.call(tool, **arguments))["data"]

    async def error(self, tool, **arguments):
        """Calls a tool that must fail, and returns the error."""
        try:
            body = await self.call(tool, **arguments)
        except ToolError as error:
            return error
        raise AssertionError(f"{tool} succeeded: {str(body)[:300]}")

    async def confirmed(self, tool, **arguments):
        """Calls a tool that asks for confirmation, as a client without elicitation does."""
        error = await self.error(tool, **arguments)
        if error.code != "confirmation_required":
            raise error
        return await self.data(tool, **arguments, confirm=error.body["error"]["confirm"])

    async def post_with(self, is_done, **ids):
        """Gets a post until it is as expected, for at most 90 s."""
        for _ in range(450):
            post = await self.data("get_post", **ids)
            if is_done(post):
                return post
            await asyncio.sleep(0.2)
        raise AssertionError(f"the post remains {post['status']}: {post['targets']}")


@asynccontextmanager
async def connect(url, key, era, elicitation=None):
    """Connects with the given key. The modern era is what the client chooses itself."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        mode = "auto" if era == "modern" else "legacy"
        async with Client(transport, mode=mode, elicitation_callback=elicitation) as client:
            yield Chat(client)


class User:
    """Answers the forms of the server, and keeps them."""

    def __init__(self, action, agrees=True):
        self.action, self.agrees, self.forms = action, agrees, []

    async def __call__(self, _context, form):
        self.forms.append(form)
        if self.action != "accept":
            return ElicitResult(action=self.action)
        properties = form.requested_schema.get("properties", {})
        return ElicitResult(action="accept", content={name: self._answer(field) for name, field in properties.items()})

    def _answer(self, field):
        if field.get("type") != "boolean":
            raise AssertionError(f"the form asks for more than a confirmation: {json.dumps(field)}")
        return self.agrees

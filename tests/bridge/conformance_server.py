"""A server of the official Python SDK with what the official conformance suite asks for.

`conformance_server.py stdio` or `conformance_server.py http PORT`: the same server behind the bridge
and over its own HTTP, so that what differs is the bridge.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    AudioContent,
    Completion,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
mcp = MCPServer(name="conformance-subject")


@mcp.tool()
def test_simple_text() -> str:
    """Plain text."""
    return "This is a simple text response for testing."


@mcp.tool()
def test_image_content() -> ImageContent:
    """An image."""
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


@mcp.tool()
def test_audio_content() -> AudioContent:
    """A sound."""
    return AudioContent(type="audio", data=SOUND, mime_type="audio/wav")


def _embedded(uri: str, text: str, kind: str = "text/plain") -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=kind, text=text)
    return EmbeddedResource(type="resource", resource=contents)


@mcp.tool()
def test_embedded_resource() -> EmbeddedResource:
    """A resource inside the result."""
    return _embedded("test://embedded-resource", "This is an embedded resource content.")


@mcp.tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Text, image and resource."""
    return [
        TextContent(type="text", text="Multiple content types test:"),
        ImageContent(type="image", data=PIXEL, mime_type="image/png"),
        _embedded("test://mixed-content-resource", json.dumps({"test": "data", "value": 123}), "application/json"),
    ]


@mcp.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Three log messages before the answer."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(text)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@mcp.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Progress 0, 50, 100."""
    for done in (0, 50, 100):
        await ctx.report_progress(progress=done, total=100, message=f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "done"


@mcp.tool()
def test_header_params(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    count: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Count"})],
) -> str:
    """Arguments that clients repeat as headers."""
    return f"{region} {count}"


@mcp.tool()
def test_error_handling() -> str:
    """Fails on purpose."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@mcp.tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    content = TextContent(type="text", text=prompt)
    result = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=content)], max_tokens=100
    )
    return f"LLM response: {getattr(result.content, 'text', 'none')}"


class Response(BaseModel):
    response: str = Field(description="User's response")


class Defaults(BaseModel):
    name: str = Field(default="John Doe", description="User name")
    age: int = Field(default=30, description="User age")
    score: float = Field(default=95.5, description="User score")
    status: str = Field(default="active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = Field(default=True, description="Verification status")


def _titled(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"const": const, "title": title} for const, title in pairs]


class Enums(BaseModel):
    untitledSingle: str = Field(json_schema_extra={"enum": ["option1", "option2", "option3"]})
    titledSingle: str = Field(json_schema_extra={"oneOf": _titled(("value1", "First"), ("value2", "Second"))})
    untitledMulti: list[str] = Field(
        json_schema_extra={"items": {"type": "string", "enum": ["option1", "option2", "option3"]}}
    )
    titledMulti: list[str] = Field(
        json_schema_extra={"items": {"anyOf": _titled(("value1", "First"), ("value2", "Second"))}}
    )
    legacyEnum: str = Field(json_schema_extra={"enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]})


async def _elicited(ctx: Context, message: str, schema: type[BaseModel]) -> str:
    result: Any = await ctx.elicit(message=message, schema=schema)
    content = result.data.model_dump_json() if result.action == "accept" else "{}"
    return f"action={result.action}, content={content}"


@mcp.tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user."""
    return "User response: " + await _elicited(ctx, message, Response)


@mcp.tool()
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks the user, with defaults."""
    return "Elicitation completed: " + await _elicited(ctx, "Your data", Defaults)


@mcp.tool()
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks the user, with choices."""
    return "Elicitation completed: " + await _elicited(ctx, "Choose", Enums)


@mcp.tool()
async def test_reconnection(ctx: Context) -> str:
    """Closes its stream half-way where it can."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.2)
    return "Reconnection test completed"


@mcp.tool()
async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Asks for input by way of an interim result (2026-07-28)."""
    if ctx.input_responses and "user_name" in ctx.input_responses:
        answer: Any = ctx.input_responses["user_name"]
        return f"Hello, {(getattr(answer, 'content', None) or {}).get('name', 'you')}!"
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"user_name": ElicitRequest(params=params)})


@mcp.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@mcp.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(PIXEL)


@mcp.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@mcp.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    return "Watched resource content"


@mcp.prompt()
def test_simple_prompt() -> str:
    """No arguments."""
    return "This is a simple prompt for testing."


@mcp.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@mcp.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:
    """A resource inside."""
    resource = _embedded(resourceUri, "Embedded resource content for testing.")
    return [
        {"role": "user", "content": resource},
        {"role": "user", "content": TextContent(type="text", text="Please process the embedded resource above.")},
    ]


@mcp.prompt()
def test_prompt_with_image() -> list[Any]:
    """An image inside."""
    return [
        {"role": "user", "content": ImageContent(type="image", data=PIXEL, mime_type="image/png")},
        {"role": "user", "content": TextContent(type="text", text="Please analyze the image above.")},
    ]


@mcp.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    return Completion(values=[], total=0, has_more=False)


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        mcp.run("stdio")
    else:
        mcp.run("streamable-http", port=int(sys.argv[2]))

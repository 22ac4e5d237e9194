"""`python -m bench.idle <count> <redis url> <channel>`: so many idle processes as the broker sees them.

Each has a connection of its own to the broker, hears every notice, reads it and finds that nobody waits for
it, as the process of a web node does. They share one process here, for a hundred whole nodes would measure
the memory of the machine.
"""

import asyncio
import sys

import msgspec
import redis.asyncio


async def listen(url: str, channel: str) -> None:
    """Hear notices for ever."""
    async with redis.asyncio.Redis.from_url(url) as client, client.pubsub() as notices:
        await notices.subscribe(channel)
        async for message in notices.listen():
            if message["type"] == "message":
                msgspec.json.decode(message["data"])


async def main(count: int, url: str, channel: str) -> None:
    """Listen so many times."""
    await asyncio.gather(*(listen(url, channel) for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))

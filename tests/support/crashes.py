"""Names of `fifoq.testing`, where this is now."""

from fifoq.testing.crashes import after_process_crash, crash_points, image_after, power_images

__all__ = ["after_process_crash", "crash_points", "image_after", "power_images"]

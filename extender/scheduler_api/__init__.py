"""The wire format of the scheduler extender and the request to schedule one pod."""

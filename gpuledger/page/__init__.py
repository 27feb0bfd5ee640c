"""The page: server-rendered HTML below `/page/`, from the projection and a `PageSource`."""

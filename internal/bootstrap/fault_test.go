package bootstrap

const childRole = "BOOTSTRAP_TEST_ROLE"

func childMain() int { return 0 }

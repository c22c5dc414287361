package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// withoutCredentials hides the AWS credentials of the computer.
func withoutCredentials(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
}

// Prices that fall back to the built-in catalog, since those of the account cannot be read, are one warning for a person and a field for
// a program, by every command that shows prices of a live cluster.
func TestPricesThatFallBackAreReported(t *testing.T) {
	withoutCredentials(t)
	for _, of := range [][]string{{"assess"}, {"top", "--once"}, {"instance-types", "--live", "m7i.large"}} {
		args := append(of, "--kubeconfig", apiServerOfNothing(t), "-o", "json")
		stdout, stderr, err := command("", args...)
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, stderr)
		}
		got := strings.Count(stderr, "warning: prices are of the built-in catalog of us-east-1")
		if got != 1 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %d warnings:\n%s", args, got, stderr)
		}
		if !strings.Contains(stdout, `"pricesProblem": "prices of the account cannot be read: `) {
			t.Errorf("%v: a program cannot see that the prices are not the account's:\n%s", args, stdout)
		}
		stdout, stderr, err = command("", append(args, "--prices", "catalog")...)
		if err != nil || stderr != "" || strings.Contains(stdout, "pricesProblem") {
			t.Errorf("%v --prices catalog: %v, %q\n%s", args, err, stderr, stdout)
		}
		if _, _, err = command("", append(args, "--prices", "account")...); of[0] != "top" && err == nil {
			t.Errorf("%v --prices account: no error", args)
		}
	}
	_, _, err := command("", "plan", "-f", "../../examples/plan", "--prices", "account")
	if err == nil || !strings.Contains(err.Error(), "--prices=account: ") {
		t.Errorf("plan --prices account: %v", err)
	}
}

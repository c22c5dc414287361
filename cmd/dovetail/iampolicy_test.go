package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// iamPolicy runs the command and returns what it prints, and its notes.
func iamPolicy(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	var out, notes bytes.Buffer
	root := rootCommand()
	root.SetArgs(append([]string{"iam-policy"}, args...))
	root.SetOut(&out)
	root.SetErr(&notes)
	err = root.Execute()
	return out.String(), notes.String(), err
}

func TestIAMPolicy(t *testing.T) {
	out, notes, err := iamPolicy(t, "--cluster-name", "shop", "--region", "eu-west-1", "--interruption-queue", "shop")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Version   string
		Statement []struct{ Sid, Effect string }
	}
	if err := json.Unmarshal([]byte(out), &document); err != nil || document.Version != "2012-10-17" || len(document.Statement) < 20 {
		t.Errorf("%v: %s", err, out)
	}
	if strings.Contains(out, "cluster-uid\": \"") && !strings.Contains(out, `cluster-uid": "*"`) {
		t.Errorf("bound to an identity that was not given:\n%s", out)
	}
	if notes != "" { // as one document it is for an inline policy, which it fits
		t.Errorf("a note on a limit that does not apply: %q", notes)
	}
	var queues []string
	for i := range 40 {
		queues = append(queues, "--interruption-queue", fmt.Sprintf("a-queue-with-a-name-that-is-far-longer-than-most-%d", i))
	}
	_, notes, err = iamPolicy(t, append([]string{"--cluster-name", "shop", "--region", "eu-west-1"}, queues...)...)
	if err != nil || !strings.Contains(notes, "too many for an inline policy (10240); --dir writes several managed policies") {
		t.Errorf("%v: no note on the limit that applies: %q", err, notes)
	}
}

func TestIAMPolicyAsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	out, _, err := iamPolicy(t, "--cluster-name", "shop", "--identity", "3f2c1a9e-7d44-4c0b-9a55-0d6e1f2b3c4d", "--dir", dir)
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(out)
	if len(files) != 2 || files[0] != filepath.Join(dir, "dovetail-shop-1.json") {
		t.Fatalf("wrote %v", files)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil || !json.Valid(text) {
			t.Errorf("%s: %v: %s", path, err, text)
		}
	}
}

func TestIAMPolicyMisused(t *testing.T) {
	for _, tc := range []struct {
		name, says string
		args       []string
	}{
		{"no cluster", "--cluster-name is required", nil},
		{"identity that is none", `identity "shop": not the UID of a namespace`, []string{"--cluster-name", "shop", "--identity", "shop"}},
		{"output", `"xml" is not one of json, yaml, table`, []string{"--cluster-name", "shop", "-o", "xml"}},
		{"files of a table", "--dir writes JSON", []string{"--cluster-name", "shop", "-o", "table", "--dir", "x"}},
		{"argument", `unknown argument "shop"`, []string{"shop"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := iamPolicy(t, tc.args...)
			if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

func TestOutputFormatsHaveTheSameContent(t *testing.T) {
	for _, args := range [][]string{
		{"plan", "-f", examplePool, "-f", exampleShop, "--no-timings"}, {"instance-types", "m5.large"}, {
			"iam-policy", "--cluster-name",
			"shop",
		}, {"version"},
	} {
		text, _, err := command("", append(args, "-o", "json")...)
		if err != nil {
			t.Fatal(err)
		}
		yaml, _, err := command("", append(args, "-o", "yaml")...)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal([]byte(text), &a), sigsyaml.Unmarshal([]byte(yaml), &b)); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		first, _ := json.Marshal(a)
		second, _ := json.Marshal(b)
		if string(first) != string(second) || strings.HasPrefix(yaml, "{") {
			t.Errorf("%q prints as json and yaml:\n%s\n%s", args, text, yaml)
		}
	}
	path := apiServerOfNothing(t)
	asJSON, _, err := command("", "snapshot", "--kubeconfig", path, "-o", "json")
	if err != nil || !strings.HasPrefix(asJSON, `{"`) {
		t.Fatalf("%v, %q", err, asJSON)
	}
	if _, stderr, err := command(asJSON, "plan", "-f", "-"); err != nil {
		t.Errorf("a snapshot as JSON cannot be planned: %v, %s", err, stderr)
	}
}

func TestOutputFileHasTheWholeResultOrIsLeftAsItWas(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plan.json")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	content := func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if _, _, err := command("", "plan", "-f", "no/such", "-o", "json", "--output-file", path); codeOf(err) != exitError ||
		content() != "before" {
		t.Errorf("%v; after an error the file holds %q", err, content())
	}
	const huge = "{apiVersion: v1, kind: Pod, metadata: {name: huge}, spec: {containers: [{name: c, resources: {requests: {cpu: 9000}}}]}}"
	stdout, _, err := command(huge, "plan", "-f", examplePool, "-f", "-", "-o", "json", "--output-file", path)
	if codeOf(err) != exitIncomplete || stdout != "" || !json.Valid([]byte(content())) {
		t.Errorf("%v, stdout %q; with a pod that is left over the file holds %q", err, stdout, content())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, files left: %v", err, left)
	}
	for _, at := range []string{dir, filepath.Join(dir, "no/such/file"), "/dev/full"} {
		if _, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop, "--output-file", at); codeOf(err) != exitError {
			t.Errorf("%s: exit code %d, %v; want 1", at, codeOf(err), err)
		}
	}
	if _, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop, "--output-file", os.DevNull); err != nil {
		t.Errorf("%s: %v", os.DevNull, err)
	}
	if _, err := os.Stat(os.DevNull); err != nil {
		t.Error(err)
	}
}

// A closed pipe, or a full disk, is an error.
func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	for _, args := range [][]string{{"plan", "-f", examplePool, "-f", exampleShop}, {"instance-types", "m5.large"}, {"version"}, {"iam-policy", "--cluster-name", "shop"}} {
		root := rootCommand()
		root.SetArgs(args)
		root.SetOut(full{})
		root.SetErr(io.Discard)
		if err := root.Execute(); codeOf(err) != exitError {
			t.Errorf("%q: exit code %d, %v; want 1", args, codeOf(err), err)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputFileFollowsASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := command("", "plan", "-f", examplePool, "-f", exampleShop, "--output-file", link); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(target)
	if err != nil || !strings.Contains(string(text), "Total: ") {
		t.Errorf("the file behind the link has %q, %v", text, err)
	}
}

func TestYAMLHasTheTextOfJSONWhateverItsRunes(t *testing.T) {
	const text = "é\u009b31m\u202e\ufeff\x7f\U0001f600\U000e0001\x1b"
	var out strings.Builder
	err := asYAML(func(w io.Writer) error { return json.NewEncoder(w).Encode(map[string]string{"text": text}) })(&out)
	if err != nil {
		t.Fatal(err)
	}
	var read map[string]string
	if err := sigsyaml.Unmarshal([]byte(out.String()), &read); err != nil || read["text"] != text {
		t.Errorf("%v: %q became %q, in the document %q", err, text, read["text"], out.String())
	}
}

func TestTextOfObjectsDoesNotControlTheTerminal(t *testing.T) {
	var out strings.Builder
	err := forTerminal(func(w io.Writer) error {
		_, err := io.WriteString(w, "NAME   é 日本\n\x1b[2J\x1b]0;owned\a\r\u202egnp\u009b31m\x7f\xff\ufeff\n")
		return err
	})(&out)
	if want := "NAME   é 日本\n?[2J?]0;owned???gnp?31m???\n"; err != nil || out.String() != want {
		t.Errorf("%v: %q, want %q", err, out.String(), want)
	}
	broken := errors.New("broken")
	out.Reset()
	err = forTerminal(func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	})(&out)
	if !errors.Is(err, broken) || out.String() != "" {
		t.Errorf("of a result that fails: %v, %q", err, out.String())
	}
}

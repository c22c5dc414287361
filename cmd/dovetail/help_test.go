package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/glossarytest"
)

func TestHelpUsesTheVocabulary(t *testing.T) {
	glossary, err := glossarytest.Load("../..")
	if err != nil {
		t.Fatal(err)
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for _, f := range glossary.Check(help.String()) {
			t.Errorf("%s --help: %s", cmd.CommandPath(), f)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(rootCommand())
}

func TestPluginIsRecognizedByItsName(t *testing.T) {
	for program, want := range map[string]bool{
		"/home/a/.krew/bin/kubectl-dovetail": true, "kubectl-dovetail.exe": true, "/usr/bin/dovetail": false, "dovetail-lab": false,
	} {
		if isPlugin(program) != want {
			t.Errorf("%s: plugin %v, want %v", program, !want, want)
		}
	}
}

// Users of the plugin can copy what its help and its errors show.
func TestPluginNamesItselfAsKubectlDoes(t *testing.T) {
	root := rootCommand()
	asPlugin(root)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--help"}, "kubectl dovetail [command]"},
		{[]string{"doctor", "--help"}, "  kubectl dovetail doctor --cluster-name shop\n"},
		{[]string{"snapshot", "--help"}, "  kubectl dovetail snapshot | kubectl dovetail plan -f -\n"},
		{[]string{"version", "--nonsense"}, "see kubectl dovetail version --help"},
	} {
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(tt.args)
		err := root.Execute()
		shown := out.String()
		if err != nil {
			shown += err.Error()
		}
		if !strings.Contains(shown, tt.want) {
			t.Errorf("%q shows:\n%s\nwant %q", tt.args, shown, tt.want)
		}
	}
}

// Each command that reads a cluster takes the flags that kubectl users know.
func TestCommandsOfAClusterTakeTheFlagsOfKubectl(t *testing.T) {
	for _, name := range []string{"doctor", "adopt", "snapshot", "instance-types"} {
		cmd, _, err := rootCommand().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"kubeconfig", "context", "as", "as-group"} {
			if cmd.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no flag --%s", name, flag)
			}
		}
	}
}

package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/glossarytest"
)

func TestHelpUsesTheVocabulary(t *testing.T) {
	glossary, err := glossarytest.Load("../../..")
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
	check(newRoot())
}

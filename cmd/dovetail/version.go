package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// versionLine is the version for people.
func versionLine() string {
	return fmt.Sprintf("dovetail %s (commit %s, %s %s/%s)\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionReport is the version for programs.
type versionReport struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
}

func versionCommand() *cobra.Command {
	var output choice
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  dovetail version\n  dovetail version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			printed := func(w io.Writer) error {
				return report.JSON(w, "Version", versionReport{version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH})
			}
			switch output.value {
			case "json":
				return printed(cmd.OutOrStdout())
			case "yaml":
				return asYAML(printed)(cmd.OutOrStdout())
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
	bindOutput(cmd, &output, "text", "json", "yaml")
	return cmd
}

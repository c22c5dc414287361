package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// versionLine is the version for people.
func versionLine() string {
	return fmt.Sprintf("dovetail %s (commit %s, %s %s/%s)\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
				return json.NewEncoder(w).Encode(map[string]string{
					"version": version, "commit": commit, "goVersion": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
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

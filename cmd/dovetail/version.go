package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  dovetail version\n  dovetail version -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "":
				fmt.Fprintf(cmd.OutOrStdout(), "dovetail %s (commit %s, %s %s/%s)\n", version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return nil
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": version, "commit": commit, "goVersion": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			return fmt.Errorf("-o %q: only json is known", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for text")
	return cmd
}

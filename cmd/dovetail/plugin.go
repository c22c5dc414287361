package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// pluginCommand is what users of the kubectl plugin type: kubectl runs the program kubectl-dovetail for it.
const pluginCommand = "kubectl dovetail"

// isPlugin reports whether the program runs under the name of the kubectl plugin. Windows adds a suffix.
func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == "kubectl-dovetail"
}

// asPlugin makes help texts, examples and errors name the command that users of the plugin type.
func asPlugin(root *cobra.Command) {
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = pluginCommand
	for _, cmd := range root.Commands() {
		cmd.Example = strings.ReplaceAll(cmd.Example, "dovetail ", pluginCommand+" ")
	}
}

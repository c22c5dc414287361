// Command generate writes the pages and files of the repository that are derived from code: docs/reference, docs/settings.md and the
// policy of the Terraform example.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dovetail-k8s/dovetail/tools/docs"
)

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	if err := write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := docs.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

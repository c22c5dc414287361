package compare

import (
	"context"
	"embed"
	"os"
)

//go:embed pool.yaml app.json
var files embed.FS

// render applies a manifest with its variables replaced.
func (r *run) render(ctx context.Context, name string, variables map[string]string) error {
	text, err := files.ReadFile(name)
	if err != nil {
		return err
	}
	return r.Apply(ctx, []byte(os.Expand(string(text), func(variable string) string { return variables[variable] })))
}

package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// operatorEnvironment is the environment of who manages the cluster: its administrator, with the AWS role of its
// autoscaler.
func (c *Cluster) operatorEnvironment() ([]string, error) {
	own, err := c.Environment()
	if err != nil {
		return nil, err
	}
	return withHostEnvironment(append(
		own,
		Variable{
			"KUBECONFIG",
			c.Kubeconfig(),
		},
		Variable{"AWS_CONFIG_FILE", os.DevNull},
		Variable{"AWS_SHARED_CREDENTIALS_FILE", os.DevNull},
	)), nil
}

// Shell runs a line as the shell of the cluster's operator does, with the lab's kubectl and the product's dovetail in
// its path, and returns what it printed. A line of which any part fails has failed.
func (c *Cluster) Shell(ctx context.Context, line string) (string, error) {
	if c.world.cfg.Dovetail == "" {
		return "", errors.New("run a command: no dovetail binary is configured")
	}
	lab := c.world.cfg.Executable
	if lab == "" {
		var err error
		if lab, err = os.Executable(); err != nil {
			return "", err
		}
	}
	path := filepath.Join(c.dir, "bin")
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	for name, does := range map[string]string{"kubectl": quoted(lab) + " kubectl", "dovetail": quoted(c.world.cfg.Dovetail)} {
		script := "#!/bin/sh\nexec " + does + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(path, name), []byte(script), 0o755); err != nil {
			return "", err
		}
	}
	env, err := c.operatorEnvironment()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Env = append(env, "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return string(out), nil
}

// quoted is a word as a shell takes it literally.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

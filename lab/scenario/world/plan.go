package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
)

// PlanOutput is the output of `dovetail plan -o json`.
type PlanOutput struct {
	Claims []struct {
		NodePool string
		Offering struct{ InstanceType string }
		Pods     []string
	}
	Unschedulable []struct{ Pod string }
	Stats         struct{ HourlyCost, LowerBound float64 } // $/h
}

// Plan runs `dovetail plan` on manifests, without a cluster or an account.
func (w *World) Plan(ctx context.Context, manifests ...[]byte) (PlanOutput, error) {
	if w.cfg.Dovetail == "" {
		return PlanOutput{}, errors.New("plan: no dovetail binary is configured")
	}
	var said, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, w.cfg.Dovetail, "plan", "-f", "-", "-o", "json", "--catalog", w.cfg.Region)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(bytes.Join(manifests, []byte("\n---\n"))), &said, &notes
	failed := cmd.Run()
	var out PlanOutput
	if err := json.Unmarshal(said.Bytes(), &out); err != nil {
		return PlanOutput{}, fmt.Errorf("%s: %w\n%s", cmd, errors.Join(failed, err), notes.Bytes())
	}
	return out, nil
}

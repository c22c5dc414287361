package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// comparedTypes is how many of the cheapest instance types by list price are compared by the account's own prices,
// which differ from them by less than a third.
const comparedTypes = 20

// SingleNode is a node that would fit all pods.
type SingleNode struct {
	Type, Zone, CapacityType string
	PerHour                  float64 // $/h
}

// ErrNoSingleNode means that no instance type of the NodePool fits the requests.
var ErrNoSingleNode = errors.New("no instance type of the NodePool fits the requests")

// CheapestNode finds the cheapest node of a NodePool that fits the requests, from `dovetail instance-types` and the account's
// prices.
func (c *Cluster) CheapestNode(ctx context.Context, pool string, requests corev1.ResourceList) (SingleNode, error) {
	if c.world.cfg.Dovetail == "" {
		return SingleNode{}, errNoBinary
	}
	var amounts []string
	for name, q := range requests {
		amounts = append(amounts, string(name)+"="+q.String())
	}
	env, err := c.operatorEnvironment()
	if err != nil {
		return SingleNode{}, err
	}
	var out, notes bytes.Buffer
	cmd := exec.CommandContext(ctx, c.world.cfg.Dovetail, "instance-types", "--live", "--nodepool", pool, "--available",
		"--requests", strings.Join(amounts, ","), "--sort", "price", "--limit", fmt.Sprint(comparedTypes), "--prices", "catalog", "-o", "json")
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &notes
	failed := cmd.Run()
	var exit *exec.ExitError
	if errors.As(failed, &exit) && exit.ExitCode() == 3 {
		return SingleNode{}, ErrNoSingleNode
	}
	var listed struct {
		InstanceTypes []struct {
			Name      string
			Offerings []struct {
				Zone, CapacityType string
				Available          bool
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &listed); err != nil {
		return SingleNode{}, fmt.Errorf("%s: %w\n%s", cmd, errors.Join(failed, err), notes.Bytes())
	}
	best := SingleNode{}
	for _, t := range listed.InstanceTypes {
		for _, o := range t.Offerings {
			if !o.Available {
				continue
			}
			i := awsim.Instance{Type: t.Name, Zone: o.Zone}
			if o.CapacityType == "spot" {
				i.Lifecycle = "spot"
			}
			price, err := c.world.Price(ctx, i)
			if err != nil {
				continue // the account does not sell it there
			}
			if best.Type == "" || price < best.PerHour {
				best = SingleNode{Type: t.Name, Zone: o.Zone, CapacityType: o.CapacityType, PerHour: price}
			}
		}
	}
	if best.Type == "" {
		return SingleNode{}, ErrNoSingleNode
	}
	return best, nil
}

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// onePrice checks that the controller's metric, top and assess state for the nodes of the only NodePool what the account charges for its
// instances. A pass sets the metric.
func onePrice(ctx context.Context, w *World, pool string) error {
	want, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	w.Note("$%.4f/h", want)
	series := regexp.MustCompile(fmt.Sprintf(`(?m)^karpenter_nodepools_cost_total\{nodepool=%q\} (\S+)$`, pool))
	err = world.Until(ctx, func() error {
		text, err := w.Metrics(ctx)
		if err != nil {
			return err
		}
		match := series.FindStringSubmatch(text)
		if match == nil {
			return fmt.Errorf("no metric has the cost of NodePool %s", pool)
		}
		got, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			return err
		}
		return samePrice("the metric", got, want)
	})
	if err != nil {
		return err
	}
	var top struct{ Cost struct{ HourlyCost float64 } }
	if err := dovetailJSON(ctx, w, &top, "top", "--once", "--prices", "account", "-o", "json"); err != nil {
		return err
	}
	if err := samePrice("top", top.Cost.HourlyCost, want); err != nil {
		return err
	}
	var assess struct{ Now struct{ HourlyCost float64 } }
	if err := dovetailJSON(ctx, w, &assess, "assess", "--prices", "account", "-o", "json"); err != nil {
		return err
	}
	return samePrice("assess", assess.Now.HourlyCost, want)
}

// samePrice returns an error unless a reader states the price that the account charges, in $/h.
func samePrice(reader string, got, want float64) error {
	if math.Abs(got-want) > 1e-9 {
		return fmt.Errorf("by %s the nodes cost $%v/h, and the account charges $%v/h", reader, got, want)
	}
	return nil
}

// dovetailJSON runs a command of the product that prints JSON.
func dovetailJSON(ctx context.Context, w *World, into any, args ...string) error {
	out, exit, err := w.RunDovetail(ctx, args...)
	if err != nil {
		return err
	}
	if exit != 0 {
		return fmt.Errorf("dovetail %v exits with %d:\n%s", args, exit, out)
	}
	return json.Unmarshal(out, into)
}

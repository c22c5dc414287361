package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// resumeFlags are the flags of the resume command.
type resumeFlags struct {
	kube kubeFlags
	all  bool
}

func resumeCommand() *cobra.Command {
	var f resumeFlags
	cmd := &cobra.Command{
		Use:   "resume [NODEPOOL]...",
		Short: "Resume deletions that the controller has paused, since more would have been deleted than the blast radius allows",
		Long: `The controller counts what it deletes, by NodePool and for the cluster. Past the limit of --blast-radius, or of a
NodePool's annotation dovetail.sh/blast-radius, it deletes no node with pods any more: the condition BlastRadiusExceeded
of NodePools states how much would have been deleted, and for which kind of reason. Launches go on, and so does what
people delete and what EC2 interrupts.

Find out why so much was to be deleted before you resume: dovetail recording list shows the decisions.

This command sets the annotation dovetail.sh/resume-deletions of the NodePools to the current time. What was deleted
before counts no longer. Without arguments it lists the NodePools with paused deletions, and changes nothing.`,
		Example: `  dovetail resume
  dovetail resume general
  dovetail resume --all`,
		Annotations: map[string]string{handlesInterrupt: "each NodePool is annotated or not"},
		RunE: func(cmd *cobra.Command, pools []string) error {
			if f.all && len(pools) > 0 {
				return misused(cmd, errors.New("give NodePools, or --all"))
			}
			c, _, err := f.kube.client()
			if err != nil {
				return err
			}
			return resumeRun{client: c, now: time.Now, out: cmd.OutOrStdout()}.run(cmd.Context(), pools, f.all)
		},
	}
	f.kube.bind(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all NodePools with paused deletions")
	return cmd
}

// resumeRun is one run of the resume command.
type resumeRun struct {
	client client.Client
	now    func() time.Time
	out    io.Writer
}

// run resumes deletions of the NodePools named, or of all that are paused, or lists these.
func (r resumeRun) run(ctx context.Context, names []string, all bool) error {
	var pools karpv1.NodePoolList
	if err := r.client.List(ctx, &pools); err != nil {
		return fmt.Errorf("list NodePools: %w", err)
	}
	var known, paused []string
	for i := range pools.Items {
		pool := &pools.Items[i]
		known = append(known, pool.Name)
		if condition.IsTrue(pool, karpv1.ConditionBlastRadiusExceeded) {
			paused = append(paused, pool.Name)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no NodePool %q; there are: %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	if all {
		names = paused
	}
	if len(names) == 0 {
		return r.list(pools.Items)
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !slices.Contains(names, pool.Name) {
			continue
		}
		if !slices.Contains(paused, pool.Name) {
			fmt.Fprintf(r.out, "nodepool/%s: deletions are not paused\n", pool.Name)
			continue
		}
		if err := r.resume(ctx, pool); err != nil {
			return err
		}
		fmt.Fprintf(r.out, "nodepool/%s: deletions resume\n", pool.Name)
	}
	return nil
}

// list lists the NodePools with paused deletions, and why.
func (r resumeRun) list(pools []karpv1.NodePool) error {
	paused := 0
	for i := range pools {
		c, found := condition.Get(&pools[i], karpv1.ConditionBlastRadiusExceeded)
		if !found || !condition.IsTrue(&pools[i], karpv1.ConditionBlastRadiusExceeded) {
			continue
		}
		paused++
		fmt.Fprintf(r.out, "nodepool/%s: %s\n", pools[i].Name, c.Message)
	}
	if paused == 0 {
		fmt.Fprintln(r.out, "Deletions are paused in no NodePool.")
		return nil
	}
	fmt.Fprintln(r.out, "To resume, run: dovetail resume NODEPOOL, or dovetail resume --all")
	return nil
}

func (r resumeRun) resume(ctx context.Context, pool *karpv1.NodePool) error {
	before := pool.DeepCopy()
	if pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	pool.Annotations[karpv1.AnnotationResumeDeletions] = r.now().UTC().Format(time.RFC3339Nano)
	if err := r.client.Patch(ctx, pool, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("annotate NodePool %q: %w", pool.Name, err)
	}
	return nil
}

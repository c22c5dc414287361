package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/instancetypelist"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// typesFlags are the flags of the instance-types command.
type typesFlags struct {
	files       []string
	live        bool
	kube        kubeFlags
	pool, class string
	catalogFlags
	family            string
	selector, request string
	query             instancetypelist.Query
	order             string
	output            choice
	settings          settings.Planning
}

func instanceTypesCommand() *cobra.Command {
	var f typesFlags
	cmd := &cobra.Command{
		Use:     "instance-types [PATTERN...]",
		Aliases: []string{"instancetypes", "types"},
		Short:   "Show the instance types that a node class or node pool can launch, and why not the others",
		Long: `Lists instance types as the controller uses them for an EC2NodeClass or a NodePool: the capacity of a node of the
type, what is allocatable to pods, the zones that offer it, and its price. For a type that is not available, it
shows why. Exit code 3 means that the list is empty.

Zones and types are those that ship with the program, or those of a catalog file; prices are those of --prices. Only the
controller knows what changes by the minute, such as insufficient capacity in EC2 and free slots of capacity reservations:
see its metric karpenter_cloudprovider_instance_type_offering_available.

NodePools and EC2NodeClasses come from files (-f), as for dovetail plan, or from the cluster of KUBECONFIG
(--live); if there are several, choose one with --nodepool or --nodeclass. Without any, the list is for a node class
with --ami-family and subnets in every zone.`,
		Example: `  dovetail instance-types --region us-east-1
  dovetail instance-types 'm7*.2xlarge' 'c7*.2xlarge' --sort price
  dovetail instance-types -l 'arch=arm64,cpu>3,cpu<17,generation in (7,8)' --requests cpu=3,memory=12Gi
  dovetail instance-types -l gpu-name=l4 -o wide
  dovetail instance-types -f nodepool.yaml -f nodeclass.yaml --all
  dovetail instance-types --live --nodepool general --available -o json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.query.Names = args
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(
		&f.files,
		"filename",
		"f",
		nil,
		"file, directory, or - for stdin, with NodePools and EC2NodeClasses; can be repeated",
	)
	fs.BoolVar(&f.live, "live", false, "take NodePools and EC2NodeClasses from the cluster of KUBECONFIG")
	f.kube.bind(cmd)
	fs.StringVar(&f.pool, "nodepool", "", "list the types of this NodePool")
	fs.StringVar(&f.class, "nodeclass", "", "list the types of this EC2NodeClass")
	f.catalogFlags.bind(cmd)
	fs.StringVar(&f.family, "ami-family", awsv1.AMIFamilyAL2023, "AMI family, if there is no EC2NodeClass")
	fs.StringVarP(
		&f.selector,
		"selector",
		"l",
		"",
		"labels that nodes must be able to have, as for kubectl; cpu is short for\n"+
			"karpenter.k8s.aws/instance-cpu, arch for kubernetes.io/arch, and so on",
	)
	fs.StringVar(&f.request, "requests", "", "what must fit on an empty node, such as cpu=2,memory=4Gi,nvidia.com/gpu=1")
	fs.BoolVar(&f.query.Available, "available", false, "omit types that are not available")
	fs.BoolVar(&f.query.Excluded, "all", false, "also list types that the NodePool excludes, and by which requirement")
	fs.StringVar(&f.order, "sort", string(instancetypelist.ByName), "order: name, price, cpu or memory")
	fs.IntVar(&f.query.Limit, "limit", 0, "maximum number of types; 0 lists all")
	bindOutput(cmd, &f.output, "table", "wide", "json", "yaml", "name")
	withOutputFile(cmd)
	complete(cmd, "ami-family", func(*cobra.Command) []string { return slices.Clone(families) })
	complete(cmd, "sort", func(*cobra.Command) []string { return []string{"name", "price", "cpu", "memory"} })
	f.settings.Bind(fs)
	for _, name := range []string{
		"preference-policy", "preference-cost", "min-values-policy", "scheduler-config", "node-overhead-cost",
	} { // without effect here
		_ = fs.MarkHidden(name) // they are there
	}
	return cmd
}

// check validates the flags by themselves.
func (f *typesFlags) check() error {
	f.query.Sort = instancetypelist.Order(f.order)
	if err := errors.Join(f.query.Validate(), f.settings.Validate(), f.catalogFlags.check()); err != nil {
		return err
	}
	var err error
	if f.query.Labels, err = instancetypelist.ParseLabels(f.selector, planner.Labels()); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	if f.query.Requests, err = parseRequests(f.request); err != nil {
		return fmt.Errorf("--requests: %w", err)
	}
	switch {
	case f.live && len(f.files) > 0:
		return errors.New("--live and -f: use only one of them; NodePools come either from the cluster or from files")
	case f.kube.given() && !f.live:
		return errors.New("--kubeconfig, --context and --as need --live")
	case (f.pool != "" || f.class != "") && !f.live && len(f.files) == 0:
		return errors.New("--nodepool and --nodeclass need -f or --live")
	case f.pool != "" && f.class != "":
		return errors.New("--nodepool and --nodeclass: use only one of them; a NodePool has a node class of its own")
	case !slices.Contains(families, f.family):
		return fmt.Errorf("--ami-family %q is not one of %s", f.family, strings.Join(families, ", "))
	}
	return nil
}

// families are the AMI families.
var families = []string{
	awsv1.AMIFamilyAL2, awsv1.AMIFamilyAL2023, awsv1.AMIFamilyBottlerocket, awsv1.AMIFamilyCustom,
	awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025,
}

func parseRequests(text string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		name, amount, _ := strings.Cut(part, "=")
		q, err := resource.ParseQuantity(amount)
		if err != nil || name == "" {
			return nil, fmt.Errorf("%q is not a resource and an amount, such as memory=4Gi", part)
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}

func (f *typesFlags) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	defer gctuning.Tune(gctuning.MinGrowth)()
	world, err := f.world(ctx, stdin)
	if err != nil {
		return err
	}
	for _, note := range world.Notes {
		fmt.Fprintln(stderr, "note:", note)
	}
	pool, class, err := f.choose(world)
	if err != nil {
		return err
	}
	report := instancetypelist.Report{}
	if class, err = f.listed(&report, pool, class, stderr); err != nil {
		return err
	}
	stock, err := f.open(world, f.settings)
	if err != nil {
		return err
	}
	f.source.warnings = stderr
	prices, err := f.priced(ctx, stock, f.live)
	if err != nil {
		return err
	}
	report.Prices, report.PricesProblem = prices.From, prices.Problem
	if r, ok := stock.(*offlineregion.Region); ok {
		report.Region, report.Currency = r.Name(), r.Currency()
		report.Basis = r.Basis(instancetype.FamilyOf(image.Family(class)).OS)
	}
	types, err := prices.Catalog.Types(class)
	if err != nil {
		return err
	}
	if pool != nil {
		offers, notes, err := planner.NewOffers(world, prices.Catalog)
		if err != nil {
			return err
		}
		for _, note := range notes {
			fmt.Fprintln(stderr, "note:", note)
		}
		types = offers.Overlaid(pool, types)
	}
	report.Entries = f.query.List(types)
	printed := map[string]func(io.Writer) error{
		"table": func(w io.Writer) error { return report.Table(w, columnsOf(stdout)) },
		"wide":  report.WideTable, "json": report.JSON, "yaml": asYAML(report.JSON), "name": report.Names,
	}
	if err := printed[f.output.value](stdout); err != nil {
		return err
	}
	if len(report.Entries) > 0 {
		return nil
	}
	excluded := f.query
	excluded.Excluded = true
	if n := len(excluded.List(types)); n > 0 {
		fmt.Fprintf(stderr, "note: the NodePool excludes %d types; --all lists them\n", n)
	}
	return exitIncomplete
}

// listed enters what the list is for into the report and the query, with notes about what is not among the inputs. The pool and the class
// may be nil. It returns the class, or one of the AMI family.
func (f *typesFlags) listed(
	report *instancetypelist.Report, pool *karpv1.NodePool, class *awsv1.EC2NodeClass, stderr io.Writer,
) (*awsv1.EC2NodeClass, error) {
	if pool != nil {
		report.NodePool = pool.Name
		own, err := planner.Labels().FromPool(pool, [2]string{})
		if err != nil {
			return nil, fmt.Errorf("NodePool %s: %w", pool.Name, err)
		}
		f.query.Pool = onlyOfTypes(own)
		if class == nil {
			fmt.Fprintf(stderr, "note: EC2NodeClass %s is not among the inputs; the list is for %s with subnets in every zone\n",
				pool.Spec.Template.Spec.NodeClassRef.Name, f.family)
		}
	}
	if class == nil {
		class = &awsv1.EC2NodeClass{}
		class.Spec.AMIFamily = f.family
		return class, nil
	}
	report.NodeClass = class.Name
	if len(class.Status.Subnets) == 0 {
		fmt.Fprintf(stderr, "note: EC2NodeClass %s has no subnets in its status; the list is for subnets in every zone\n", class.Name)
	}
	return class, nil
}

// onlyOfTypes removes the labels that a pool sets on its nodes: no instance type has them, and none can contradict them.
func onlyOfTypes(pool requirement.Set) requirement.Set {
	own := slices.DeleteFunc(pool.Keys(), func(key string) bool {
		return planner.Labels().Vocabulary.WellKnown[key] && key != karpv1.LabelNodePool
	})
	return pool.Without(own...)
}

// world is the objects of the inputs.
func (f *typesFlags) world(ctx context.Context, stdin io.Reader) (*manifest.ClusterState, error) {
	switch {
	case f.live:
		return f.cluster(ctx)
	case len(f.files) > 0:
		return manifest.Input{Paths: f.files, Stdin: stdin, MaxBytes: f.maxInput.bytes()}.Read()
	}
	return &manifest.ClusterState{}, nil
}

// cluster reads NodePools and EC2NodeClasses of the cluster of KUBECONFIG.
func (f *typesFlags) cluster(ctx context.Context) (*manifest.ClusterState, error) {
	cluster, _, err := f.kube.client()
	if err != nil {
		return nil, err
	}
	var pools karpv1.NodePoolList
	var classes awsv1.EC2NodeClassList
	for _, list := range []client.ObjectList{&pools, &classes} {
		if err := cluster.List(ctx, list); err != nil {
			return nil, fmt.Errorf("read the cluster: %w", err)
		}
	}
	w := &manifest.ClusterState{NodeClasses: map[string]*awsv1.EC2NodeClass{}}
	if err := w.ReadOverlays(ctx, cluster); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	for i := range pools.Items {
		w.NodePools = append(w.NodePools, &pools.Items[i])
	}
	for i := range classes.Items {
		w.NodeClasses[classes.Items[i].Name] = &classes.Items[i]
	}
	return w, nil
}

// choose returns the pool and the class to list for; either may be nil.
func (f *typesFlags) choose(w *manifest.ClusterState) (*karpv1.NodePool, *awsv1.EC2NodeClass, error) {
	if f.class != "" {
		class := w.NodeClasses[f.class]
		if class == nil {
			return nil, nil, fmt.Errorf("there is no EC2NodeClass %q, only %s", f.class, named(slices.Sorted(maps.Keys(w.NodeClasses))))
		}
		return nil, class, nil
	}
	var names []string
	for _, pool := range w.NodePools {
		names = append(names, pool.Name)
	}
	slices.Sort(names)
	switch {
	case f.pool != "" && !slices.Contains(names, f.pool):
		return nil, nil, fmt.Errorf("there is no NodePool %q, only %s", f.pool, named(names))
	case f.pool == "" && len(names) > 1:
		return nil, nil, fmt.Errorf("there are several NodePools: choose one of %s with --nodepool", named(names))
	}
	for _, pool := range w.NodePools {
		if ref := pool.Spec.Template.Spec.NodeClassRef; f.pool == "" || pool.Name == f.pool {
			return pool, w.NodeClasses[ref.Name], nil
		}
	}
	switch classes := slices.Sorted(maps.Keys(w.NodeClasses)); len(classes) {
	case 0:
		return nil, nil, nil
	case 1:
		return nil, w.NodeClasses[classes[0]], nil
	default:
		return nil, nil, fmt.Errorf("there are several EC2NodeClasses: choose one of %s with --nodeclass", named(classes))
	}
}

func named(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

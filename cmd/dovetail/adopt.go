package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/apiserver"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// adoptFlags are the flags of the adopt command.
type adoptFlags struct {
	accountFlags
	yes bool
}

// accountFlags select a cluster, and a region of an account.
type accountFlags struct {
	clusterName, region string
	kube                kubeFlags
	// reservedCapacity and kubeletExpressions are feature gates of the controller that decide what node classes select.
	reservedCapacity, kubeletExpressions bool
}

// bind declares the flags.
func (f *accountFlags) bind(cmd *cobra.Command, clusterName string) {
	f.kube.bind(cmd)
	f.bindAccount(cmd, clusterName)
}

// bindAccount declares those of the AWS account.
func (f *accountFlags) bindAccount(cmd *cobra.Command, clusterName string) {
	bindClusterName(cmd, &f.clusterName, clusterName)
	bindRegion(cmd, &f.region, "AWS region of the cluster (default: as the AWS SDK finds it, such as AWS_REGION)")
}

func adoptCommand() *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt INSTANCE-ID...",
		Short: "Tag instances that have this cluster's name, but no cluster identity, as this cluster's",
		Long: `The controller terminates and tags only instances with the identity of its cluster: the tag dovetail.sh/cluster-uid,
the UID of the namespace kube-system. It adopts instances of an earlier autoscaler by itself, if they have a Node and a
NodeClaim. Other instances with the cluster's name stay untouched, and are listed in the event UnknownInstances: only a
person can know whether they are leftovers of this cluster.

This command shows what would happen to such instances. With --yes, it tags them. An instance without a NodeClaim is
then terminated by the next garbage collection, within about two minutes. An instance of another cluster, or one without
tags that name this cluster, is refused.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context; AWS credentials come from the usual places of the
AWS SDK, and so does the region without --region.

Exit code 1 also means that an instance was refused.`,
		Example: `  dovetail adopt --cluster-name shop i-0123456789abcdef0
  dovetail adopt --cluster-name shop i-0123456789abcdef0 --yes`,
		Args:        cobra.MinimumNArgs(1),
		Annotations: map[string]string{handlesInterrupt: "an instance is tagged or not"},
		RunE: func(cmd *cobra.Command, ids []string) error {
			if f.clusterName == "" {
				return misused(cmd, errors.New("--cluster-name is required: set it, or CLUSTER_NAME, to the name of the EKS cluster"))
			}
			if err := checkInstanceIDs(ids); err != nil {
				return misused(cmd, err)
			}
			account, matches, err := openAccount(cmd.Context(), f.accountFlags, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
			if err != nil {
				return err
			}
			return adoptRun{
				instances: account.Instances,
				matches:   matches,
				now:       time.Now,
				yes:       f.yes,
				out:       cmd.OutOrStdout(),
			}.run(
				cmd.Context(),
				ids,
			)
		},
	}
	f.bind(cmd, "name of the EKS cluster (required)")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "tag the instances; without it, only show what would happen")
	return cmd
}

var instanceID = regexp.MustCompile(`^i-[0-9a-f]+$`)

func checkInstanceIDs(ids []string) error {
	for _, id := range ids {
		if !instanceID.MatchString(id) {
			return fmt.Errorf("%q is not the ID of an instance, such as i-0123456789abcdef0", id)
		}
	}
	return nil
}

// adoptable are the instances of an account, as the adopt command works on them.
type adoptable interface {
	Get(ctx context.Context, providerID string) (cloudprovider.Instance, error)
	Adopt(ctx context.Context, i cloudprovider.Instance) error
	Release(ctx context.Context, i cloudprovider.Instance) error
}

// adoptRun is one run of the adopt command.
type adoptRun struct {
	instances adoptable
	matches   matches
	now       func() time.Time
	yes       bool
	out       io.Writer
}

func (a adoptRun) run(ctx context.Context, ids []string) error {
	var refused []string
	done := 0
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		adopted, err := a.one(ctx, id)
		switch {
		case err != nil:
			refused = append(refused, id)
			fmt.Fprintf(a.out, "%s: refused: %v\n", id, err)
		case adopted:
			done++
		}
	}
	if done > 0 && !a.yes {
		fmt.Fprintln(a.out, "Nothing was changed. Repeat with --yes to do it.")
	}
	if len(refused) > 0 {
		return fmt.Errorf("refused: %s", strings.Join(refused, ", "))
	}
	return nil
}

// one adopts an instance, or prints what would happen to it. It reports whether there is something to do.
func (a adoptRun) one(ctx context.Context, id string) (bool, error) {
	i, err := a.instances.Get(ctx, instance.ProviderID("", id))
	switch {
	case errors.Is(err, cloudprovider.ErrNotFound), errors.Is(err, instance.ErrNotVisible):
		return false, errors.New("EC2 has no such instance in this account and region, or it is terminated")
	case err != nil:
		return false, err
	case i.Owner == cloudprovider.Ours:
		fmt.Fprintf(a.out, "%s: already belongs to this cluster\n", id)
		return false, nil
	}
	fmt.Fprintf(a.out, "%s: %s, %s, launched %s ago", id, i.State, i.Type, a.now().Sub(i.LaunchedAt).Round(time.Second))
	if i.NodeClaim != "" {
		fmt.Fprintf(a.out, " for NodeClaim %s", i.NodeClaim)
	}
	fmt.Fprintln(a.out)
	adopt, outcome := a.instances.Release, "it has no NodeClaim here, and is terminated within about two minutes"
	if claim := a.matches.claims[i.ProviderID]; i.Owner == cloudprovider.Adoptable {
		adopt, outcome = a.instances.Adopt, "it stays as the instance of NodeClaim "+claim
	} else if claim != "" {
		outcome = "it stays as the instance of NodeClaim " + claim
	}
	if !a.yes {
		fmt.Fprintf(a.out, "  would be tagged as this cluster's; %s\n", outcome)
		return true, a.allowed(i)
	}
	if err := adopt(ctx, i); err != nil {
		return false, err
	}
	fmt.Fprintf(a.out, "  tagged as this cluster's; %s\n", outcome)
	return true, nil
}

// allowed returns why an instance would be refused, without changing it.
func (a adoptRun) allowed(i cloudprovider.Instance) error {
	if i.Owner == cloudprovider.Adoptable {
		return nil
	}
	_, err := a.matches.identity.Release(i)
	return err
}

// matches are the provider IDs that this API server knows, and the identity of the cluster.
type matches struct {
	identity identity.Identity
	// claims are the names of NodeClaims by provider ID; both are the matches for which there is a Node, too.
	claims map[string]string
	both   map[string]identity.Match
}

// openAccount identifies the cluster, checks that the name is its name, and reads which instances its API server knows.
func openAccount(ctx context.Context, f accountFlags, log *slog.Logger) (*adapter.Adapter, matches, error) {
	kube, config, err := f.kube.client()
	if err != nil {
		return nil, matches{}, err
	}
	sdk, err := operator.LoadSDK(ctx, version, f.region, log)
	if err != nil {
		return nil, matches{}, err
	}
	known, err := readMatches(ctx, kube)
	if err != nil {
		return nil, matches{}, err
	}
	known.identity.ClusterName, known.identity.Region = f.clusterName, sdk.Region
	local, err := operator.APIServer(config)
	if err != nil {
		return nil, matches{}, err
	}
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, matches{}, err
	}
	server, err := operator.ServerVersion(finder)
	if err != nil {
		return nil, matches{}, err
	}
	local.EKS = strings.Contains(server.GitVersion, "-eks-")
	account, err := adapter.New(adapter.Config{
		AWS: sdk, Identity: known.identity, Now: time.Now, Jitter: rand.Float64, Log: log,
		Cluster: bootstrap.Cluster{
			Name: f.clusterName, Endpoint: local.Endpoint, CABundle: base64.StdEncoding.EncodeToString(local.CA),
		},
		KubernetesVersion: operator.MinorVersion(server), OnlyEKS: true,
		ReservedCapacity: f.reservedCapacity, KubeletExpressions: f.kubeletExpressions,
		APIServer: apiserver.Reader{Live: kube},
		Match:     func(providerID string) identity.Match { return known.both[providerID] },
	})
	if err != nil {
		return nil, matches{}, err
	}
	return account, known, account.Preflight.Preflight(ctx, local)
}

// readMatches reads which instances the API server knows.
func readMatches(ctx context.Context, kube client.Reader) (matches, error) {
	out := matches{claims: map[string]string{}, both: map[string]identity.Match{}}
	system := &corev1.Namespace{}
	if err := kube.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return out, fmt.Errorf("read the identity of the cluster: %w", err)
	}
	out.identity.ClusterUID = string(system.UID)
	var nodes corev1.NodeList
	var claims karpv1.NodeClaimList
	if err := errors.Join(kube.List(ctx, &nodes), kube.List(ctx, &claims)); err != nil {
		return out, fmt.Errorf("read Nodes and NodeClaims: %w", err)
	}
	joined := map[string]bool{}
	for _, n := range nodes.Items {
		joined[n.Spec.ProviderID] = true
	}
	for _, c := range claims.Items {
		if id := c.Status.ProviderID; id != "" && awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) {
			out.claims[id] = c.Name
			if joined[id] {
				out.both[id] = identity.Match{ClaimName: c.Name, ClaimUID: string(c.UID)}
			}
		}
	}
	return out, nil
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// kubeFlags are kubectl's flags that select a cluster and a user. cli-runtime has the same, but imports text/template, which makes the
// linker keep every method of the AWS SDK: the program would be more than twice as large.
type kubeFlags struct {
	kubeconfig, context, as string
	groups                  []string
	// contexts and allContexts select several clusters, where a command can show these.
	contexts    []string
	allContexts bool
	// several is true for one of several clusters that are read at once.
	several bool
}

// bind declares the flags, and completes their values.
func (k *kubeFlags) bind(cmd *cobra.Command) {
	k.bindUser(cmd)
	cmd.Flags().StringVar(&k.context, clientcmd.FlagContext, "", "context of the kubeconfig file (default: its current context)")
	complete(cmd, clientcmd.FlagContext, func(*cobra.Command) []string { return contexts(k.raw()) })
}

// bindUser declares all but --context.
func (k *kubeFlags) bindUser(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&k.kubeconfig, clientcmd.RecommendedConfigPathFlag, "", "kubeconfig file (default: KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&k.as, clientcmd.FlagImpersonate, "", "user to impersonate, such as system:serviceaccount:NAMESPACE:NAME")
	fs.StringArrayVar(&k.groups, clientcmd.FlagImpersonateGroup, nil, "group to impersonate; can be repeated")
}

// given reports whether any of the flags is set.
func (k *kubeFlags) given() bool {
	return k.kubeconfig+k.context+k.as != "" || len(k.groups)+len(k.contexts) > 0 || k.allContexts
}

func (k *kubeFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: k.context}
	overrides.AuthInfo.Impersonate, overrides.AuthInfo.ImpersonateGroups = k.as, k.groups
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// raw is the merged kubeconfig files; empty if they cannot be read.
func (k *kubeFlags) raw() clientcmdapi.Config {
	config, err := k.loader().RawConfig()
	if err != nil {
		return clientcmdapi.Config{}
	}
	return config
}

func contexts(config clientcmdapi.Config) (out []string) {
	for name := range config.Contexts {
		if name != "" { // which --context would take for the current one
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

const setKubeconfig = "set KUBECONFIG or --kubeconfig to a file that kubectl works with"

// config is the client configuration of the cluster. Its error names what to set.
func (k *kubeFlags) config() (*rest.Config, error) {
	paths := cmp.Or(k.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	if err := missingFiles(paths); err != nil {
		return nil, fmt.Errorf("find the cluster: %w (%s)", err, setKubeconfig)
	}
	config, err := k.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w (%s, and --context to a context in it)", err, setKubeconfig)
	}
	config.UserAgent = "dovetail/" + version
	if config.ExecProvider != nil && k.several { // several commands cannot prompt one person
		config.ExecProvider.StdinUnavailable = true
		config.ExecProvider.StdinUnavailableMessage = "several clusters are read at once"
	}
	return config, nil
}

// client reads the cluster.
func (k *kubeFlags) client() (client.Client, *rest.Config, error) {
	config, err := k.config()
	if err != nil {
		return nil, nil, err
	}
	scheme, err := operator.Scheme()
	if err != nil {
		return nil, nil, err
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return kube, config, nil
}

// missingFiles is an error if none of the files exists: client-go would continue as if they were not named.
func missingFiles(paths string) error {
	var missing error
	for _, path := range filepath.SplitList(paths) {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		missing = errors.Join(missing, err)
	}
	return missing
}

// bindClusterName declares --cluster-name, which completes to the EKS clusters that kubeconfig knows.
func bindClusterName(cmd *cobra.Command, into *string, usage string) {
	cmd.Flags().StringVar(into, "cluster-name", os.Getenv("CLUSTER_NAME"), usage)
	complete(cmd, "cluster-name", func(*cobra.Command) []string { return eksClusters(new(kubeFlags).raw()) })
}

// eksClusters are the names of the EKS clusters in a kubeconfig file: aws eks update-kubeconfig names a cluster by its ARN.
func eksClusters(config clientcmdapi.Config) (out []string) {
	for name := range config.Clusters {
		parsed, err := arn.Parse(name)
		if cluster, found := strings.CutPrefix(parsed.Resource, "cluster/"); err == nil && found {
			out = append(out, cluster)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// bindRegion declares --region, which completes to those of the built-in catalog.
func bindRegion(cmd *cobra.Command, into *string, usage string) {
	cmd.Flags().StringVar(into, "region", "", usage)
	complete(cmd, "region", func(*cobra.Command) []string {
		data, err := offline.Load()
		if err != nil {
			return nil
		}
		return data.Regions()
	})
}

// bindNamespace declares --namespace, which completes to those of the current cluster.
func bindNamespace(cmd *cobra.Command, into *string, usage string) {
	cmd.Flags().StringVarP(into, "namespace", "n", "", usage)
	complete(cmd, "namespace", func(cmd *cobra.Command) []string { return namespaces(cmd.Context()) })
}

// completionTimeout sets how long a shell waits for namespaces to complete. Completion that takes longer is in the way.
const completionTimeout = 2 * time.Second

func namespaces(ctx context.Context) []string {
	config, err := new(kubeFlags).config()
	if err != nil {
		return nil
	}
	config.Timeout = completionTimeout
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	var list *corev1.NamespaceList
	if list, err = clientset.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		return nil
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

// complete offers values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values func(*cobra.Command) []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return slices.DeleteFunc(values(cmd), func(v string) bool { return !strings.HasPrefix(v, prefix) }), cobra.ShellCompDirectiveNoFileComp
	}) // the flag is there
}

// choice is a flag with a fixed set of values.
type choice struct {
	value string
	known []string
}

// bindOutput declares --output. The first format is the default.
func bindOutput(cmd *cobra.Command, into *choice, formats ...string) {
	*into = choice{formats[0], formats}
	cmd.Flags().VarP(into, "output", "o", "output format: "+strings.Join(formats, ", "))
	complete(cmd, "output", func(*cobra.Command) []string { return slices.Clone(formats) })
}

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.known, text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(c.known, ", "))
	}
	c.value = text
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return c.value }

// Type implements pflag.Value.
func (*choice) Type() string { return "format" }

var _ pflag.Value = (*choice)(nil)

// sizeLimit is a flag: how much is read at most.
type sizeLimit struct{ quantity resource.Quantity }

func (b *sizeLimit) bind(fs *pflag.FlagSet) {
	b.quantity = *resource.NewQuantity(manifest.DefaultMaxBytes, resource.BinarySI)
	fs.Var(b, "max-input", "maximum size of all inputs together, such as 500Mi or 4Gi")
}

// bytes is the limit; 0 means the default.
func (b *sizeLimit) bytes() int64 { return b.quantity.Value() }

// Set implements pflag.Value.
func (b *sizeLimit) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("%q is not an amount of memory, such as 500Mi or 4Gi", text)
	}
	b.quantity = q
	return nil
}

// String implements pflag.Value.
func (b *sizeLimit) String() string { return b.quantity.String() }

// Type implements pflag.Value.
func (*sizeLimit) Type() string { return "size" }

// read reads one file within the limit.
func (b *sizeLimit) read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // nothing was written
	most := b.bytes()
	if most == 0 {
		most = manifest.DefaultMaxBytes
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %s: raise --max-input", path, &b.quantity)
	}
	return data, err
}

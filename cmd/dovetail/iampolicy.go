package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// policyFlags are the flags of the iam-policy command.
type policyFlags struct {
	params policy.Params
	output choice
	dir    string
}

func iamPolicyCommand() *cobra.Command {
	var f policyFlags
	cmd := &cobra.Command{
		Use:   "iam-policy --cluster-name NAME",
		Short: "Print the IAM policy that the controller needs, and no more",
		Long: `Prints the IAM policy of the controller's role: what it calls, on which resources, and under which
conditions. It calls no cluster and no AWS API.

With --identity, the UID of the namespace kube-system, every action that creates, terminates or tags a resource requires
the tag dovetail.sh/cluster-uid. Two clusters with the same name can then never terminate each other's instances.
Without it, the policy only requires the cluster's name, as Karpenter's policy does.

The policy fits into an inline policy of a role (10,240 characters without white space), but not into one managed
policy (6,144): --dir writes it as several policies, one per file. Attach all of them.

Without --account, the policy names no account; without --region, it is valid for any region.`,
		Example: `  dovetail iam-policy --cluster-name shop --region eu-west-1 --account 111122223333 \
    --identity "$(kubectl get namespace kube-system -o jsonpath={.metadata.uid})" --interruption-queue shop > policy.json
  aws iam put-role-policy --role-name KarpenterControllerRole-shop --policy-name dovetail --policy-document file://policy.json

  dovetail iam-policy --cluster-name shop --dir policies    # for managed policies: policies/dovetail-shop-1.json, ...
  dovetail iam-policy --cluster-name shop -o table          # what each permission is for`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := f.check()
			if err != nil {
				return misused(cmd, err)
			}
			return f.run(document, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	bindClusterName(cmd, &f.params.Cluster, "name of the EKS cluster (required)")
	fs.StringVar(&f.params.Identity, "identity", "", "UID of the cluster's namespace kube-system")
	bindRegion(cmd, &f.params.Region, "AWS region of the cluster (default: AWS_REGION; without either, the policy is valid for any)")
	fs.StringVar(&f.params.Account, "account", "", "AWS account of the cluster, twelve digits")
	fs.StringVar(&f.params.Partition, "partition", "", "partition, such as aws-cn (default: that of the region)")
	fs.StringArrayVar(
		&f.params.NodeRoles,
		"node-role",
		nil,
		"role that nodes may have, by name, path/name or ARN; can be repeated (default KarpenterNodeRole-CLUSTER)",
	)
	fs.StringArrayVar(&f.params.Queues, "interruption-queue", nil, "SQS queue with interruption events, by name or ARN; can be repeated")
	fs.StringArrayVar(
		&f.params.Parameters,
		"ssm-parameter",
		nil,
		"SSM parameter in an ssmParameter term, by name or ARN, optionally with a * at its end; can be repeated",
	)
	fs.BoolVar(&f.params.Reboots, "reboot-for-repair", false, "permit to reboot instances, which the feature gate RebootForRepair needs")
	fs.BoolVar(&f.params.ReadOnly, "read-only", false, "only the permissions to read, which is all that --shadow of the controller needs")
	bindOutput(cmd, &f.output, "json", "yaml", "table")
	withOutputFile(cmd)
	fs.StringVar(&f.dir, "dir", "", "directory to write managed policies to, instead of stdout; it is created if absent")
	return cmd
}

// check validates the flags by themselves, and returns the policy.
func (f *policyFlags) check() (policy.Document, error) {
	switch {
	case f.params.Cluster == "":
		return nil, errors.New("--cluster-name is required: the name of the EKS cluster")
	case f.dir != "" && f.output.value != "json":
		return nil, errors.New("--dir writes JSON: leave out -o")
	}
	f.params.Region = cmp.Or(f.params.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	return policy.New(f.params)
}

func (f *policyFlags) run(document policy.Document, stdout, stderr io.Writer) error {
	switch {
	case f.output.value == "table":
		return printPermissions(document, stdout)
	case f.dir != "":
		return f.write(document, stdout)
	}
	size, err := document.Size()
	if err != nil {
		return err
	}
	if size > policy.InlineLimit { // one document is for an inline policy, as the documentation has it
		fmt.Fprintf(stderr, "note: the policy has %d characters, too many for an inline policy (%d); --dir writes several managed policies\n",
			size, policy.InlineLimit)
	}
	text, err := document.JSON()
	if err != nil {
		return err
	}
	printed := func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}
	if f.output.value == "yaml" {
		printed = asYAML(printed)
	}
	return printed(stdout)
}

// write writes the policy as managed policies, one per file, and prints the file names.
func (f *policyFlags) write(document policy.Document, stdout io.Writer) error {
	parts, err := document.Split(policy.ManagedLimit)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	for i, part := range parts {
		text, err := part.JSON()
		if err != nil {
			return err
		}
		path := filepath.Join(f.dir, fmt.Sprintf("dovetail-%s-%d.json", f.params.Cluster, i+1))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		fmt.Fprintln(stdout, path)
	}
	return nil
}

// printPermissions prints a line per action of each statement.
func printPermissions(document policy.Document, stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STATEMENT\tACTION\tFOR")
	for _, s := range document {
		for _, g := range s.Grants {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Sid, g.Action, g.For)
		}
	}
	return w.Flush()
}

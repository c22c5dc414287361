output "cluster_name" {
  description = "Name of the cluster."
  value       = aws_eks_cluster.this.name
}

output "kubeconfig_command" {
  description = "The command that lets kubectl reach the cluster."
  value       = "aws eks update-kubeconfig --name ${aws_eks_cluster.this.name} --region ${var.region}"
}

output "node_role" {
  description = "The role for spec.role of node classes."
  value       = aws_iam_role.node.name
}

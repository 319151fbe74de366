"""What a graph is: types, values, attributes, nodes, graphs and models, without any knowledge of operators."""
